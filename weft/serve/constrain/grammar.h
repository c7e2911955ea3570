// Grammar: what a constrained reply may be, as rules over characters. Regular
// expressions, GBNF and JSON schemas are read into it; machine.h compiles it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/serve/constrain/code_points.h"

namespace weft::serve::constrain {

struct Automaton;

// Bounds on what is read, so that no text from outside makes a compiler recurse or
// grow without end.
inline constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 20;
inline constexpr int kMaxNesting = 128;             // groups within groups
inline constexpr std::int64_t kMaxRepeat = 20'000;  // of {m,n}, minLength, maxItems, ...
inline constexpr std::size_t kMaxRules = 20'000;

// One expression. A plain value; at most kMaxNesting deep.
struct Expr {
  enum class Kind {
    kEmpty,      // the empty text
    kText,       // `text`, byte for byte
    kChars,      // one character of `chars`, in UTF-8
    kSequence,   // `parts`, one after the other
    kChoice,     // one of `parts`
    kRepeat,     // parts[0], `min` to `max` times (-1 = any number)
    kCall,       // rule `rule` of the grammar
    kAutomaton,  // what `automaton` accepts (it has no calls)
    kGraph,      // a way from node 0 to node 1 along `arcs`, arc i reading parts[i]
  };
  Kind kind = Kind::kEmpty;
  std::string text;
  CodePoints chars;
  std::vector<Expr> parts;
  std::int64_t min = 0, max = 0;
  int rule = -1;
  std::shared_ptr<const Automaton> automaton;
  std::vector<std::pair<int, int>> arcs;  // from, to
  int nodes = 0;
};

Expr text_of(std::string text);
Expr any_of(CodePoints chars);
Expr sequence(std::vector<Expr> parts);
Expr choice(std::vector<Expr> parts);
Expr repeat(Expr part, std::int64_t min, std::int64_t max);
Expr call(int rule);
Expr exactly(Automaton automaton);  // kAutomaton
inline Expr optional_of(Expr part) { return repeat(std::move(part), 0, 1); }

struct Grammar {
  struct Rule {
    std::string name;  // as errors call it
    Expr body;
    bool shared = false;  // kept as one rule even if it is small enough to copy
  };
  std::vector<Rule> rules;
  int root = 0;
};

}  // namespace weft::serve::constrain
