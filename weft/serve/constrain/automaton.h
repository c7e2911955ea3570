// Automaton: deterministic, over bytes and calls of rules.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/result.h"
#include "weft/serve/constrain/grammar.h"

namespace weft::serve::constrain {

struct Edge {
  std::uint8_t first, last;  // bytes
  std::int32_t to;
  auto operator<=>(const Edge&) const = default;
};
struct Call {
  std::int32_t rule;
  std::int32_t to;  // where it goes on when the rule has ended
  auto operator<=>(const Call&) const = default;
};

// Starts at state 0. No two edges of a state share a byte, no two calls a rule: a
// call counts as a symbol of its own, so the automaton is deterministic although
// the grammar need not be. A plain value. No states = nothing is accepted.
struct Automaton {
  struct State {
    std::vector<Edge> edges;  // ascending
    std::vector<Call> calls;  // ascending
    bool final = false;
  };
  std::vector<State> states;

  bool accepts(std::string_view text) const;  // no calls
};

// Bounds of one automaton and of the work on it: beyond, kResourceExhausted.
inline constexpr std::size_t kMaxNfaStates = 1'000'000;
inline constexpr std::size_t kMaxStates = 300'000;

// Thompson's construction, the subset construction and minimisation. `inlined(rule)`
// gives the body that a call is replaced by, or null to keep the call.
Result<Automaton> build_automaton(const Expr& expr,
                                  const std::function<const Expr*(int)>& inlined = nullptr);

// Both, or the first without the second; neither has calls. Minimal. May be empty.
Result<Automaton> intersect(const Automaton& a, const Automaton& b);
Result<Automaton> subtract(const Automaton& a, const Automaton& b);

// Without the states that reach no end, equivalent ones merged; state 0 stays first.
// Costs about states x alphabet x log(states).
Automaton minimised(const Automaton& from);

// Groups states by what they do within `depth` bytes (or at all, if negative): two
// states of one group accept the same beginnings of that length. Returns the group of
// each. Partition refinement where only predecessors of what changed are looked at
// again (after Hopcroft, 1971).
std::vector<std::int32_t> groups_of(std::span<const Automaton::State> states, int depth);

// The automaton of a machine written as values: state `start`, `step(state, byte)`
// gives the next one or nothing, `final(state)` whether it may end. Empty if it would
// have more than kMaxStates states.
template <class S>
Automaton explore(const S& start, const std::function<bool(const S&, std::uint8_t, S&)>& step,
                  const std::function<bool(const S&)>& final) {
  Automaton out;
  std::map<S, std::int32_t> known;
  std::vector<S> order;
  const auto id_of = [&](const S& s) {
    const auto [at, added] = known.emplace(s, static_cast<std::int32_t>(order.size()));
    if (added) order.push_back(s);
    return at->second;
  };
  id_of(start);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order.size() > kMaxStates) return {};
    Automaton::State state;
    state.final = final(order[i]);
    for (int byte = 0; byte < 256; ++byte) {
      S next{};
      const auto b = static_cast<std::uint8_t>(byte);
      if (!step(S(order[i]), b, next)) continue;
      const std::int32_t to = id_of(next);
      if (!state.edges.empty() && state.edges.back().to == to &&
          state.edges.back().last + 1 == byte) {
        state.edges.back().last = b;
      } else {
        state.edges.push_back({b, b, to});
      }
    }
    out.states.push_back(std::move(state));
  }
  return minimised(out);
}

}  // namespace weft::serve::constrain
