// Machine: a compiled grammar, a pushdown automaton over bytes.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/serve/constrain/automaton.h"
#include "weft/serve/constrain/grammar.h"

namespace weft::serve::constrain {

// Each rule's automaton, laid out in one list of states. A call pushes the state to
// go on in; a final state may pop. From every state that is reached an end can be
// reached, so no beginning that the machine takes is a dead end.
// Immutable; safe to read from many threads.
struct Machine {
  struct State {
    bool final = false;
    bool returns_only = false;  // final, and nothing else to do: a call to here needs no push
  };
  std::vector<Automaton::State> states;
  std::vector<State> flags;
  std::vector<std::int32_t> start;  // of each rule; -1 = not used
  std::int32_t root = 0;            // the start of the root rule
};

// Refuses, naming the rule:
//   - left recursion (`a ::= a "x"`, also through other rules and empty ones), since a
//     machine that reads from the left would call for ever;
//   - rules that never end (`a ::= "x" a`);
//   - a repetition of what can only be empty;
//   - what is larger than the bounds of automaton.h (kResourceExhausted).
// `bytes` are those that tokens can spell; what needs another byte is left out, and a
// rule that needs one is refused.
// Bounded work: a fraction of a second for any grammar that the readers accept.
Result<Machine> compile(const Grammar& grammar, const std::bitset<256>& bytes);

}  // namespace weft::serve::constrain
