#include "weft/serve/constrain/automaton.h"

#include <algorithm>
#include <unordered_map>

#include "weft/base/hash.h"

namespace weft::serve::constrain {

Expr text_of(std::string text) {
  Expr e;
  e.kind = text.empty() ? Expr::Kind::kEmpty : Expr::Kind::kText;
  e.text = std::move(text);
  return e;
}
Expr any_of(CodePoints chars) {
  Expr e;
  e.kind = Expr::Kind::kChars;
  e.chars = std::move(chars);
  return e;
}
Expr sequence(std::vector<Expr> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  Expr e;
  e.kind = parts.empty() ? Expr::Kind::kEmpty : Expr::Kind::kSequence;
  e.parts = std::move(parts);
  return e;
}
Expr choice(std::vector<Expr> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  Expr e;
  e.kind = Expr::Kind::kChoice;
  e.parts = std::move(parts);
  return e;
}
Expr repeat(Expr part, std::int64_t min, std::int64_t max) {
  Expr e;
  e.kind = Expr::Kind::kRepeat;
  e.parts.push_back(std::move(part));
  e.min = min;
  e.max = max;
  return e;
}
Expr call(int rule) {
  Expr e;
  e.kind = Expr::Kind::kCall;
  e.rule = rule;
  return e;
}

Expr exactly(Automaton automaton) {
  Expr e;
  e.kind = Expr::Kind::kAutomaton;
  e.automaton = std::make_shared<const Automaton>(std::move(automaton));
  return e;
}

bool Automaton::accepts(std::string_view text) const {
  if (states.empty()) return false;
  const State* at = states.data();
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    const auto edge = std::ranges::lower_bound(at->edges, byte, {}, &Edge::last);
    if (edge == at->edges.end() || edge->first > byte) return false;
    at = &states[static_cast<std::size_t>(edge->to)];
  }
  return at->final;
}

namespace {

// A symbol is a byte or 256 + a rule.
struct NfaEdge {
  std::int32_t first, last, to;
};
struct NfaState {
  std::vector<NfaEdge> edges;
  std::vector<std::int32_t> empty;  // edges without a symbol
};

class NfaBuilder {
 public:
  explicit NfaBuilder(const std::function<const Expr*(int)>& inlined) : inlined_(inlined) {}

  // Adds `expr` from `from`; the state where it ends.
  std::int32_t add(const Expr& expr, std::int32_t from) {
    if (overflow_) return from;
    switch (expr.kind) {
      case Expr::Kind::kEmpty:
        return from;
      case Expr::Kind::kText:
        for (const char c : expr.text) {
          const auto byte = static_cast<std::uint8_t>(c);
          const std::int32_t to = state();
          edge(from, byte, byte, to);
          from = to;
        }
        return from;
      case Expr::Kind::kChars:
        return add_chars(expr.chars, from);
      case Expr::Kind::kSequence:
        for (const Expr& part : expr.parts) from = add(part, from);
        return from;
      case Expr::Kind::kChoice: {
        const std::int32_t end = state();
        for (const Expr& part : expr.parts) {
          const std::int32_t begin = state();
          empty(from, begin);
          empty(add(part, begin), end);
        }
        return end;
      }
      case Expr::Kind::kRepeat:
        return add_repeat(expr, from);
      case Expr::Kind::kCall: {
        if (inlined_) {
          if (const Expr* body = inlined_(expr.rule)) return add(*body, from);
        }
        const std::int32_t to = state();
        edge(from, 256 + expr.rule, 256 + expr.rule, to);
        return to;
      }
      case Expr::Kind::kAutomaton:
        return add_automaton(*expr.automaton, from);
      case Expr::Kind::kGraph:
        return add_graph(expr, from);
    }
    return from;
  }

  std::int32_t state() {
    if (states.size() >= kMaxNfaStates) {
      overflow_ = true;
      return 0;
    }
    states.emplace_back();
    return static_cast<std::int32_t>(states.size() - 1);
  }
  bool overflow() const { return overflow_; }

  std::vector<NfaState> states;

 private:
  void edge(std::int32_t from, std::int32_t first, std::int32_t last, std::int32_t to) {
    states[static_cast<std::size_t>(from)].edges.push_back({first, last, to});
  }
  void empty(std::int32_t from, std::int32_t to) {
    if (from != to) states[static_cast<std::size_t>(from)].empty.push_back(to);
  }

  std::int32_t add_chars(const CodePoints& chars, std::int32_t from) {
    const std::int32_t end = state();
    for (const ByteRun& run : utf8_runs(chars)) {
      std::int32_t at = from;
      for (int i = 0; i < run.length; ++i) {
        const auto& [first, last] = run.bytes[static_cast<std::size_t>(i)];
        const std::int32_t to = i + 1 == run.length ? end : state();
        edge(at, first, last, to);
        at = to;
      }
    }
    return end;
  }

  std::int32_t add_repeat(const Expr& expr, std::int32_t from) {
    const Expr& part = expr.parts[0];
    for (std::int64_t i = 0; i < expr.min && !overflow_; ++i) from = add(part, from);
    if (expr.max < 0) {
      const std::int32_t loop = state();
      empty(from, loop);
      const std::int32_t begin = state();
      empty(loop, begin);
      empty(add(part, begin), loop);
      const std::int32_t end = state();
      empty(loop, end);
      return end;
    }
    // Each further round can be left at once for the end, so a closure stays small.
    const std::int32_t end = state();
    for (std::int64_t i = expr.min; i < expr.max && !overflow_; ++i) {
      const std::int32_t begin = state();
      empty(from, begin);
      empty(from, end);
      from = add(part, begin);
    }
    empty(from, end);
    return end;
  }

  std::int32_t add_automaton(const Automaton& automaton, std::int32_t from) {
    const std::int32_t end = state();
    if (automaton.states.empty()) return end;
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < automaton.states.size(); ++i) ids.push_back(state());
    if (overflow_) return end;
    empty(from, ids[0]);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      for (const Edge& e : automaton.states[i].edges) {
        edge(ids[i], e.first, e.last, ids[static_cast<std::size_t>(e.to)]);
      }
      if (automaton.states[i].final) empty(ids[i], end);
    }
    return end;
  }

  std::int32_t add_graph(const Expr& expr, std::int32_t from) {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < expr.nodes; ++i) ids.push_back(state());
    empty(from, ids[0]);
    for (std::size_t i = 0; i < expr.arcs.size() && !overflow_; ++i) {
      const auto [a, b] = expr.arcs[i];
      empty(add(expr.parts[i], ids[static_cast<std::size_t>(a)]), ids[static_cast<std::size_t>(b)]);
    }
    return ids[1];
  }

  const std::function<const Expr*(int)>& inlined_;
  bool overflow_ = false;
};

constexpr std::int64_t kMaxSubsetWork = 100'000'000;

struct VectorHash {
  std::size_t operator()(const std::vector<std::int32_t>& v) const {
    return static_cast<std::size_t>(xxh3_64(std::as_bytes(std::span(v))));
  }
};

// The subset construction (Rabin and Scott, 1959).
class Subsets {
 public:
  Subsets(const std::vector<NfaState>& nfa, std::int32_t end)
      : nfa_(nfa), end_(end), seen_(nfa.size(), 0) {}

  Result<Automaton> run() {
    Automaton out;
    id_of({0});
    // Growth that is not that of the text itself is the exponential kind.
    const std::size_t most = std::min(kMaxStates, 2 * nfa_.size() + 10'000);
    for (std::size_t at = 0; at < sets_.size(); ++at) {
      if (sets_.size() > most || work_ > kMaxSubsetWork) {
        return fail(ErrorCode::kResourceExhausted,
                    "it needs more than {} states: its repetitions and alternatives multiply; "
                    "lower the bounds of its repetitions",
                    most);
      }
      out.states.push_back(expand(std::vector<std::int32_t>(*sets_[at])));
    }
    return out;
  }

 private:
  std::int32_t id_of(const std::vector<std::int32_t>& targets) {
    std::vector<std::int32_t> closed;
    ++stamp_;
    stack_ = targets;
    while (!stack_.empty()) {
      const std::int32_t s = stack_.back();
      stack_.pop_back();
      std::uint32_t& seen = seen_[static_cast<std::size_t>(s)];
      if (seen == stamp_) continue;
      seen = stamp_;
      const NfaState& state = nfa_[static_cast<std::size_t>(s)];
      if (!state.edges.empty() || s == end_) closed.push_back(s);
      stack_.insert(stack_.end(), state.empty.begin(), state.empty.end());
      work_ += 1 + static_cast<std::int64_t>(state.empty.size());
    }
    std::ranges::sort(closed);
    const auto [found, added] =
        known_.try_emplace(std::move(closed), static_cast<std::int32_t>(sets_.size()));
    if (added) sets_.push_back(&found->first);
    return found->second;
  }

  Automaton::State expand(const std::vector<std::int32_t>& set) {
    Automaton::State state;
    std::vector<NfaEdge> edges;
    std::vector<std::int32_t> cuts;
    for (const std::int32_t s : set) {
      if (s == end_) state.final = true;
      for (const NfaEdge& e : nfa_[static_cast<std::size_t>(s)].edges) {
        edges.push_back(e);
        cuts.push_back(e.first);
        cuts.push_back(e.last + 1);
      }
    }
    std::ranges::sort(cuts);
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::ranges::sort(edges, {}, &NfaEdge::first);
    std::vector<std::int32_t> targets;
    std::size_t begin = 0;
    std::vector<NfaEdge> open;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const std::int32_t first = cuts[i], last = cuts[i + 1] - 1;
      while (begin < edges.size() && edges[begin].first <= first) open.push_back(edges[begin++]);
      std::erase_if(open, [&](const NfaEdge& e) { return e.last < first; });
      if (open.empty()) continue;
      targets.clear();
      for (const NfaEdge& e : open) targets.push_back(e.to);
      work_ += static_cast<std::int64_t>(targets.size());
      const std::int32_t to = id_of(targets);
      if (first >= 256) {
        state.calls.push_back({first - 256, to});
      } else if (!state.edges.empty() && state.edges.back().to == to &&
                 state.edges.back().last + 1 == first) {
        state.edges.back().last = static_cast<std::uint8_t>(last);
      } else {
        state.edges.push_back(
            {static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last), to});
      }
    }
    return state;
  }

  const std::vector<NfaState>& nfa_;
  const std::int32_t end_;
  std::vector<std::uint32_t> seen_;
  std::uint32_t stamp_ = 0;
  std::vector<std::int32_t> stack_;
  std::unordered_map<std::vector<std::int32_t>, std::int32_t, VectorHash> known_;
  std::vector<const std::vector<std::int32_t>*> sets_;
  std::int64_t work_ = 0;
};

Result<Automaton> product(const Automaton& a, const Automaton& b, bool subtracts) {
  if (a.states.empty()) return a;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> known;
  std::vector<std::pair<std::int32_t, std::int32_t>> order;
  const auto id_of = [&](std::int32_t x, std::int32_t y) {
    const auto [at, added] =
        known.emplace(std::pair(x, y), static_cast<std::int32_t>(order.size()));
    if (added) order.emplace_back(x, y);
    return at->second;
  };
  id_of(0, b.states.empty() ? -1 : 0);
  static const Automaton::State kNowhere;
  Automaton out;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order.size() > kMaxStates) {
      return fail(ErrorCode::kResourceExhausted, "its conditions together need more than {} states",
                  kMaxStates);
    }
    const auto [x, y] = order[i];
    const auto& from = a.states[static_cast<std::size_t>(x)];
    const auto& other = y < 0 ? kNowhere : b.states[static_cast<std::size_t>(y)];
    Automaton::State state;
    state.final = from.final && (subtracts ? !other.final : other.final);
    for (const Edge& e : from.edges) {
      int at = e.first;
      const auto add = [&](int last, std::int32_t to_b) {
        if (at <= last && (subtracts || to_b >= 0)) {
          state.edges.push_back(
              {static_cast<std::uint8_t>(at), static_cast<std::uint8_t>(last), id_of(e.to, to_b)});
        }
        at = std::max(at, last + 1);
      };
      for (const Edge& f : other.edges) {
        if (f.last < at || f.first > e.last) continue;
        add(f.first - 1, -1);
        add(std::min(f.last, e.last), f.to);
      }
      add(e.last, -1);
    }
    out.states.push_back(std::move(state));
  }
  return minimised(out);
}

}  // namespace

Result<Automaton> build_automaton(const Expr& expr,
                                  const std::function<const Expr*(int)>& inlined) {
  NfaBuilder nfa(inlined);
  const std::int32_t end = nfa.add(expr, nfa.state());
  if (nfa.overflow()) {
    return fail(ErrorCode::kResourceExhausted,
                "it is too large: its repetitions written out have more than {} places; lower "
                "their bounds",
                kMaxNfaStates);
  }
  WEFT_ASSIGN(const Automaton subsets, Subsets(nfa.states, end).run());
  return minimised(subsets);
}

Result<Automaton> intersect(const Automaton& a, const Automaton& b) { return product(a, b, false); }
Result<Automaton> subtract(const Automaton& a, const Automaton& b) { return product(a, b, true); }

std::vector<std::int32_t> groups_of(std::span<const Automaton::State> states, int depth) {
  const std::size_t n = states.size();
  std::vector<std::int32_t> group(n);
  std::vector<std::vector<std::int32_t>> before(n);
  for (std::size_t s = 0; s < n; ++s) {
    for (const Edge& e : states[s].edges) {
      before[static_cast<std::size_t>(e.to)].push_back(static_cast<std::int32_t>(s));
    }
    for (const Call& c : states[s].calls) {
      before[static_cast<std::size_t>(c.to)].push_back(static_cast<std::int32_t>(s));
    }
  }
  // What a state does, targets replaced by their groups; equal neighbours are joined.
  const auto signature = [&](std::int32_t s, std::vector<std::int32_t>& out) {
    const Automaton::State& state = states[static_cast<std::size_t>(s)];
    out.clear();
    out.push_back(state.final ? 1 : 0);
    for (const Edge& e : state.edges) {
      const std::int32_t to = group[static_cast<std::size_t>(e.to)];
      if (out.size() > 3 && out.back() == to && out[out.size() - 2] + 1 == e.first) {
        out[out.size() - 2] = e.last;
        continue;
      }
      out.insert(out.end(), {e.first, e.last, to});
    }
    for (const Call& c : state.calls) {
      out.insert(out.end(), {256 + c.rule, 0, group[static_cast<std::size_t>(c.to)]});
    }
  };
  // Round 0 looks at every state; later rounds at the predecessors of what moved.
  std::vector<std::int32_t> look(n);
  for (std::size_t s = 0; s < n; ++s) look[s] = static_cast<std::int32_t>(s);
  std::vector<std::vector<std::int32_t>> members(1);
  members[0] = look;
  std::vector<std::int32_t> where(n);  // index within members[group]
  for (std::size_t s = 0; s < n; ++s) where[s] = static_cast<std::int32_t>(s);
  std::vector<std::uint32_t> marked(n, 0);
  std::uint32_t stamp = 0;
  std::vector<std::int32_t> key;
  for (int round = 0; !look.empty() && (depth < 0 || round <= depth); ++round) {
    ++stamp;
    std::map<std::int32_t, std::vector<std::int32_t>> by_group;
    for (const std::int32_t s : look) {
      if (std::exchange(marked[static_cast<std::size_t>(s)], stamp) == stamp) continue;
      by_group[group[static_cast<std::size_t>(s)]].push_back(s);
    }
    std::vector<std::pair<std::int32_t, std::vector<std::int32_t>>> moves;  // old group, states
    for (auto& [g, list] : by_group) {
      const auto& all = members[static_cast<std::size_t>(g)];
      std::unordered_map<std::vector<std::int32_t>, std::vector<std::int32_t>, VectorHash> parts;
      for (const std::int32_t s : list) {
        signature(s, key);
        parts[key].push_back(s);
      }
      std::vector<std::int32_t> rest_key;
      const std::size_t rest = all.size() - list.size();
      if (rest > 0) {
        for (const std::int32_t s : all) {
          if (marked[static_cast<std::size_t>(s)] == stamp) continue;
          signature(s, rest_key);
          break;
        }
      }
      // The largest part keeps the group's number.
      const std::vector<std::int32_t>* keeps = nullptr;
      std::size_t best = 0;
      for (const auto& [k, part] : parts) {
        const std::size_t count = part.size() + (rest > 0 && k == rest_key ? rest : 0);
        if (count > best || (count == best && keeps != nullptr && k < *keeps)) {
          best = count;
          keeps = &k;
        }
      }
      const bool rest_has_part = rest > 0 && parts.contains(rest_key);
      const bool rest_keeps = rest > 0 && (rest_has_part ? *keeps == rest_key : rest >= best);
      std::vector<const std::vector<std::int32_t>*> order;
      for (const auto& [k, part] : parts) order.push_back(&k);
      std::ranges::sort(order, [](const auto* x, const auto* y) { return *x < *y; });
      for (const auto* k : order) {
        const bool is_rest = rest > 0 && *k == rest_key;
        if (rest_keeps ? is_rest : k == keeps) continue;
        std::vector<std::int32_t> moved = parts[*k];
        if (is_rest) {
          for (const std::int32_t s : all) {
            if (marked[static_cast<std::size_t>(s)] != stamp) moved.push_back(s);
          }
        }
        moves.emplace_back(g, std::move(moved));
      }
      if (rest > 0 && !rest_keeps && !rest_has_part) {
        std::vector<std::int32_t> moved;
        for (const std::int32_t s : all) {
          if (marked[static_cast<std::size_t>(s)] != stamp) moved.push_back(s);
        }
        moves.emplace_back(g, std::move(moved));
      }
    }
    look.clear();
    for (auto& [g, moved] : moves) {
      const auto to = static_cast<std::int32_t>(members.size());
      members.emplace_back();
      for (const std::int32_t s : moved) {
        auto& old = members[static_cast<std::size_t>(g)];
        const std::int32_t at = where[static_cast<std::size_t>(s)];
        old[static_cast<std::size_t>(at)] = old.back();
        where[static_cast<std::size_t>(old.back())] = at;
        old.pop_back();
        where[static_cast<std::size_t>(s)] =
            static_cast<std::int32_t>(members[static_cast<std::size_t>(to)].size());
        members[static_cast<std::size_t>(to)].push_back(s);
        group[static_cast<std::size_t>(s)] = to;
      }
      for (const std::int32_t s : moved) {
        const auto& preds = before[static_cast<std::size_t>(s)];
        look.insert(look.end(), preds.begin(), preds.end());
      }
    }
  }
  return group;
}

Automaton minimised(const Automaton& from) {
  const std::size_t n = from.states.size();
  if (n == 0) return {};
  // States from which an end can be reached (a call counts as passable here).
  std::vector<std::vector<std::int32_t>> before(n);
  for (std::size_t s = 0; s < n; ++s) {
    for (const Edge& e : from.states[s].edges) {
      before[static_cast<std::size_t>(e.to)].push_back(static_cast<std::int32_t>(s));
    }
    for (const Call& c : from.states[s].calls) {
      before[static_cast<std::size_t>(c.to)].push_back(static_cast<std::int32_t>(s));
    }
  }
  std::vector<char> alive(n, 0);
  std::vector<std::int32_t> stack;
  for (std::size_t s = 0; s < n; ++s) {
    if (from.states[s].final) stack.push_back(static_cast<std::int32_t>(s));
  }
  while (!stack.empty()) {
    const auto s = static_cast<std::size_t>(stack.back());
    stack.pop_back();
    if (std::exchange(alive[s], 1) != 0) continue;
    stack.insert(stack.end(), before[s].begin(), before[s].end());
  }
  if (alive[0] == 0) return {};
  Automaton live = from;
  const auto dead = [&](const auto& e) { return alive[static_cast<std::size_t>(e.to)] == 0; };
  for (auto& state : live.states) {
    std::erase_if(state.edges, dead);
    std::erase_if(state.calls, dead);
  }
  const std::vector<std::int32_t> group = groups_of(live.states, -1);
  // Numbered in the order of a walk from the start, so equal languages look equal.
  std::vector<std::int32_t> id(n, -1);
  std::vector<std::int32_t> order;
  const auto number = [&](std::int32_t s) {
    const auto g = static_cast<std::size_t>(group[static_cast<std::size_t>(s)]);
    if (id[g] < 0) {
      id[g] = static_cast<std::int32_t>(order.size());
      order.push_back(s);
    }
    return id[g];
  };
  number(0);
  Automaton out;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Automaton::State& state = live.states[static_cast<std::size_t>(order[i])];
    Automaton::State to;
    to.final = state.final;
    for (const Edge& e : state.edges) {
      const std::int32_t target = number(e.to);
      if (!to.edges.empty() && to.edges.back().to == target &&
          to.edges.back().last + 1 == e.first) {
        to.edges.back().last = e.last;
      } else {
        to.edges.push_back({e.first, e.last, target});
      }
    }
    for (const Call& c : state.calls) to.calls.push_back({c.rule, number(c.to)});
    out.states.push_back(std::move(to));
  }
  return out;
}

}  // namespace weft::serve::constrain
