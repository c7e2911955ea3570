// Constraint: a grammar compiled for one vocabulary, and what a reply under it may
// go on with. docs/constrained-output.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"
#include "weft/serve/constrain/grammar.h"
#include "weft/serve/constrain/machine.h"
#include "weft/serve/constrain/parses.h"
#include "weft/serve/constrain/token_trie.h"

namespace weft::serve::constrain {

// Which tokens may follow in one state of the machine, as far as the state alone
// tells (the split into tokens that depend on the stack and those that do not is that
// of XGrammar, Dong et al., MLSys'25). Tokens with a node of `escapes` as their
// beginning end the state's rule there: where they go on depends on the caller.
struct StateMask {
  std::vector<std::uint64_t> bits;     // one bit a token; or, where few are set, none and
  std::vector<model::TokenId> listed;  // the ids
  std::vector<std::int32_t> escapes;   // nodes of the trie
};

// Masks are made when the constraint is, up to a budget of work, and later when first
// needed. States that do the same within the longest token share one.
// Immutable from outside; every method may be called from many threads.
class Constraint {
 public:
  // kInvalidArgument, kUnsupported or kResourceExhausted, naming the rule.
  static Result<std::shared_ptr<const Constraint>> make(const Grammar& grammar,
                                                        std::shared_ptr<const TokenTrie> trie);
  ~Constraint();

  const Machine& machine() const { return machine_; }
  const TokenTrie& trie() const { return *trie_; }
  const StateMask& mask_of(std::int32_t state) const;
  std::int64_t masks_made() const;  // so far
  std::int64_t mask_groups() const { return static_cast<std::int64_t>(masks_.size()); }

 private:
  Constraint(Machine machine, std::shared_ptr<const TokenTrie> trie);
  // Walks the vocabulary from `state`; adds the nodes it looked at to `visits`.
  std::unique_ptr<StateMask> make_mask(std::int32_t state, Parses& parses,
                                       std::int64_t& visits) const;

  Machine machine_;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<std::int32_t> group_;  // of each state
  mutable std::vector<std::atomic<const StateMask*>> masks_;
};

// How far one reply has come. For one thread at a time.
// Limit of mask(): reading the row that it is applied to once (4 bytes a token of the
// vocabulary) takes 4 to 10 us for 50,000 to 130,000 tokens; walking the escapes of a
// state whose stack is new takes a few thousand table steps of 2 to 5 ns; a stack seen
// before costs a look-up. `weft bench run constrain` measures it: 57 to 246 us a token on
// a loaded machine, above the 50 us aimed at.
class ConstraintState {
 public:
  explicit ConstraintState(std::shared_ptr<const Constraint> constraint);
  ConstraintState(const ConstraintState&) = delete;  // its parses refer to its machine
  ConstraintState& operator=(const ConstraintState&) = delete;

  // Bit t % 64 of word t / 64: token t may be next. Valid until the next call.
  // kResourceExhausted: the grammar reads the text so far in too many ways at once.
  // kInvalidArgument: no token of the vocabulary can go on.
  Result<std::span<const std::uint64_t>> allowed();
  // Takes a token that was allowed. False (and nothing changes) if it was not.
  bool accept(model::TokenId token);
  bool accept_bytes(std::string_view bytes);
  bool accepting() const;  // the text so far is a whole one
  bool complete() const;   // it is, and nothing can be added

 private:
  struct CachedMask {
    Parses::Config config = Parses::kDead;
    std::vector<std::uint64_t> bits;
  };
  void add_state(const Parses::Item& item, std::vector<std::uint64_t>& bits);
  void add_below(std::int32_t node, Parses::Config config, std::vector<std::uint64_t>& bits);

  std::shared_ptr<const Constraint> constraint_;
  Parses parses_;
  Parses::Config at_;
  bool ended_ = false;
  std::vector<CachedMask> cache_;  // by configuration, direct mapped
  std::vector<Parses::Config> path_;
};

// What a request asks for.
struct ConstraintSpec {
  enum class Kind { kRegex, kGbnf, kJsonSchema, kJsonObject, kChoice };
  Kind kind = Kind::kJsonObject;
  std::string text;                  // of kRegex, kGbnf and kJsonSchema
  std::vector<std::string> choices;  // of kChoice
};
Result<Grammar> read_grammar(const ConstraintSpec& spec);
Result<std::shared_ptr<const Constraint>> make_constraint(const ConstraintSpec& spec,
                                                          std::shared_ptr<const TokenTrie> trie);

}  // namespace weft::serve::constrain
