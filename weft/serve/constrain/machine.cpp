#include "weft/serve/constrain/machine.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace weft::serve::constrain {

namespace {

// Rules up to this size are copied to where they are called: their ends are then
// inside an automaton, where masks need no look at the stack.
constexpr std::int64_t kInlineSize = 300;
constexpr std::int64_t kInlineTotal = 20'000;  // of one rule with its copies

class Compiler {
 public:
  Compiler(const Grammar& grammar, const std::bitset<256>& bytes)
      : grammar_(grammar), bytes_(bytes), facts_(grammar.rules.size()) {}

  Result<Machine> run() {
    find_callers();
    WEFT_TRY(refuse_empty_loops());
    find_nullable();
    WEFT_TRY(refuse_left_recursion());
    order_by_calls();
    WEFT_TRY(build());
    WEFT_TRY(prune());
    return flatten();
  }

 private:
  struct Facts {
    bool nullable = false, recursive = false, reached = false, productive = false;
    std::int64_t size = 0;  // of its body with the copies, as places of an automaton
    bool copied = false;
    Automaton automaton;
  };
  using Kind = Expr::Kind;

  Facts& facts(int rule) { return facts_[static_cast<std::size_t>(rule)]; }
  const Facts& facts(int rule) const { return facts_[static_cast<std::size_t>(rule)]; }
  const Grammar::Rule& rule(int at) const { return grammar_.rules[static_cast<std::size_t>(at)]; }
  int rules() const { return static_cast<int>(grammar_.rules.size()); }

  // Whether it can be empty, given what is known of the rules.
  bool nullable(const Expr& e) const {
    switch (e.kind) {
      case Kind::kEmpty:
        return true;
      case Kind::kText:
      case Kind::kChars:
        return false;
      case Kind::kSequence:
        return std::ranges::all_of(e.parts, [&](const Expr& p) { return nullable(p); });
      case Kind::kChoice:
        return std::ranges::any_of(e.parts, [&](const Expr& p) { return nullable(p); });
      case Kind::kRepeat:
        return e.min == 0 || nullable(e.parts[0]);
      case Kind::kCall:
        return facts(e.rule).nullable;
      case Kind::kAutomaton:
        return !e.automaton->states.empty() && e.automaton->states[0].final;
      case Kind::kGraph:
        return left_nodes(e)[1] != 0;
    }
    return false;
  }

  // The nodes of a graph that can be reached before any byte was read.
  std::vector<char> left_nodes(const Expr& e) const {
    std::vector<char> seen(static_cast<std::size_t>(e.nodes), 0);
    seen[0] = 1;
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < e.arcs.size(); ++i) {
        const auto [from, to] = e.arcs[i];
        if (seen[static_cast<std::size_t>(from)] == 0 || seen[static_cast<std::size_t>(to)] != 0) {
          continue;
        }
        if (!nullable(e.parts[i])) continue;
        seen[static_cast<std::size_t>(to)] = 1;
        changed = true;
      }
    }
    return seen;
  }

  // Whether it can be anything but empty; `shown[rule]` as known so far.
  bool shows(const Expr& e, const std::vector<char>& shown) const {
    switch (e.kind) {
      case Kind::kEmpty:
        return false;
      case Kind::kText:
      case Kind::kChars:
        return true;
      case Kind::kSequence:
      case Kind::kChoice:
      case Kind::kGraph:
        return std::ranges::any_of(e.parts, [&](const Expr& p) { return shows(p, shown); });
      case Kind::kRepeat:
        return e.max != 0 && shows(e.parts[0], shown);
      case Kind::kCall:
        return shown[static_cast<std::size_t>(e.rule)] != 0;
      case Kind::kAutomaton:
        return !e.automaton->states.empty() && !e.automaton->states[0].edges.empty();
    }
    return false;
  }
  bool has_empty_loop(const Expr& e, const std::vector<char>& shown) const {
    if (e.kind == Kind::kRepeat && (e.max < 0 || e.max > 1) && !shows(e.parts[0], shown)) {
      return true;
    }
    return std::ranges::any_of(e.parts, [&](const Expr& p) { return has_empty_loop(p, shown); });
  }
  Status refuse_empty_loops() {
    std::vector<char> shown(facts_.size(), 0);
    spread(callers_, [&](int r) {
      if (shown[static_cast<std::size_t>(r)] != 0 || !shows(rule(r).body, shown)) return false;
      shown[static_cast<std::size_t>(r)] = 1;
      return true;
    });
    for (int r = 0; r < rules(); ++r) {
      if (has_empty_loop(rule(r).body, shown)) {
        return fail(ErrorCode::kInvalidArgument,
                    "{} repeats something that can only be empty; give the repetition a text",
                    rule(r).name);
      }
    }
    return {};
  }

  // Calls `step` for rules until none changes any more; a rule is looked at again when
  // one that it calls has changed. `callers[r]` are the rules that call r.
  template <class Step>
  void spread(const std::vector<std::vector<int>>& callers, Step step) const {
    std::deque<int> work;
    std::vector<char> queued(facts_.size(), 1);
    for (int r = 0; r < rules(); ++r) work.push_back(r);
    while (!work.empty()) {
      const int r = work.front();
      work.pop_front();
      queued[static_cast<std::size_t>(r)] = 0;
      if (!step(r)) continue;
      for (const int again : callers[static_cast<std::size_t>(r)]) {
        if (std::exchange(queued[static_cast<std::size_t>(again)], 1) == 0) work.push_back(again);
      }
    }
  }
  void find_callers() {
    callers_.resize(facts_.size());
    for (int r = 0; r < rules(); ++r) {
      for_each_call(rule(r).body, [&](int called) {
        auto& list = callers_[static_cast<std::size_t>(called)];
        if (list.empty() || list.back() != r) list.push_back(r);
      });
    }
  }
  template <class Each>
  void for_each_call(const Expr& e, const Each& each) const {
    if (e.kind == Kind::kCall) each(e.rule);
    for (const Expr& part : e.parts) for_each_call(part, each);
  }

  void find_nullable() {
    spread(callers_, [&](int r) {
      if (facts(r).nullable || !nullable(rule(r).body)) return false;
      return facts(r).nullable = true;
    });
  }

  // Rules that can be called before any byte was read.
  void left_calls(const Expr& e, std::vector<int>& out) const {
    switch (e.kind) {
      case Kind::kCall:
        out.push_back(e.rule);
        return;
      case Kind::kSequence:
        for (const Expr& part : e.parts) {
          left_calls(part, out);
          if (!nullable(part)) return;
        }
        return;
      case Kind::kChoice:
        for (const Expr& part : e.parts) left_calls(part, out);
        return;
      case Kind::kRepeat:
        if (e.max != 0) left_calls(e.parts[0], out);
        return;
      case Kind::kGraph: {
        const std::vector<char> left = left_nodes(e);
        for (std::size_t i = 0; i < e.arcs.size(); ++i) {
          if (left[static_cast<std::size_t>(e.arcs[i].first)] != 0) left_calls(e.parts[i], out);
        }
        return;
      }
      default:
        return;
    }
  }

  // A depth-first walk of `next(rule)`, without recursion; `cycle(path)` is called for
  // the first cycle and ends it.
  Status refuse_left_recursion() {
    enum : char { kNew, kOpen, kDone };
    std::vector<char> mark(facts_.size(), kNew);
    struct Frame {
      int rule;
      std::vector<int> next;
      std::size_t at;
    };
    for (int root = 0; root < rules(); ++root) {
      if (mark[static_cast<std::size_t>(root)] != kNew) continue;
      std::vector<Frame> path;
      const auto open = [&](int r) {
        mark[static_cast<std::size_t>(r)] = kOpen;
        path.push_back({r, {}, 0});
        left_calls(rule(r).body, path.back().next);
      };
      open(root);
      while (!path.empty()) {
        Frame& top = path.back();
        if (top.at == top.next.size()) {
          mark[static_cast<std::size_t>(top.rule)] = kDone;
          path.pop_back();
          continue;
        }
        const int next = top.next[top.at++];
        if (mark[static_cast<std::size_t>(next)] == kNew) {
          open(next);
        } else if (mark[static_cast<std::size_t>(next)] == kOpen) {
          return left_recursion(path, next);
        }
      }
    }
    return {};
  }
  template <class Path>
  Status left_recursion(const Path& path, int again) const {
    std::string way;
    std::size_t shown = 0;
    bool inside = false;
    for (const auto& frame : path) {
      inside = inside || frame.rule == again;
      if (inside && ++shown <= 8) way += rule(frame.rule).name + " -> ";
      if (inside && shown == 9) way += "... -> ";
    }
    return fail(ErrorCode::kInvalidArgument,
                "{} is left-recursive ({}{}): it calls itself before it has read anything; write "
                "it as a repetition or with the recursion at the end",
                rule(again).name, way, rule(again).name);
  }

  // Tarjan's components, without recursion: rules called come before their callers in
  // `order_`; rules in a cycle are recursive.
  void order_by_calls() {
    const auto n = facts_.size();
    std::vector<int> index(n, -1), low(n, 0);
    std::vector<char> on_stack(n, 0);
    std::vector<int> stack;
    int counter = 0;
    struct Frame {
      int rule;
      std::vector<int> next;
      std::size_t at;
    };
    std::vector<Frame> path;
    const auto open = [&](int r) {
      const auto i = static_cast<std::size_t>(r);
      index[i] = low[i] = counter++;
      stack.push_back(r);
      on_stack[i] = 1;
      facts(r).reached = true;
      path.push_back({r, {}, 0});
      for_each_call(rule(r).body, [&](int c) { path.back().next.push_back(c); });
    };
    open(grammar_.root);
    while (!path.empty()) {
      Frame& top = path.back();
      const auto i = static_cast<std::size_t>(top.rule);
      if (top.at < top.next.size()) {
        const int next = top.next[top.at++];
        const auto j = static_cast<std::size_t>(next);
        if (next == top.rule) facts(next).recursive = true;
        if (index[j] < 0) {
          open(next);
        } else if (on_stack[j] != 0) {
          low[i] = std::min(low[i], index[j]);
        }
        continue;
      }
      const int r = top.rule;
      path.pop_back();
      if (!path.empty()) {
        auto& up = low[static_cast<std::size_t>(path.back().rule)];
        up = std::min(up, low[i]);
      }
      if (low[i] != index[i]) continue;
      std::vector<int> component;
      do {
        component.push_back(stack.back());
        on_stack[static_cast<std::size_t>(stack.back())] = 0;
        stack.pop_back();
      } while (component.back() != r);
      for (const int c : component) {
        if (component.size() > 1) facts(c).recursive = true;
        order_.push_back(c);
      }
    }
  }

  // Places of an automaton, with the copies of called rules; capped, so no overflow.
  std::int64_t size_of(const Expr& e) const {
    constexpr std::int64_t kCap = std::int64_t{1} << 40;
    switch (e.kind) {
      case Kind::kEmpty:
        return 1;
      case Kind::kText:
        return static_cast<std::int64_t>(e.text.size());
      case Kind::kChars:
        return 1 + 3 * static_cast<std::int64_t>(e.chars.ranges().size());
      case Kind::kSequence:
      case Kind::kChoice:
      case Kind::kGraph: {
        std::int64_t sum = 1 + e.nodes;
        for (const Expr& part : e.parts) sum = std::min(kCap, sum + size_of(part));
        return sum;
      }
      case Kind::kRepeat: {
        const std::int64_t times = std::max<std::int64_t>({1, e.min, e.max});
        return std::min(kCap, (1 + size_of(e.parts[0])) * times);
      }
      case Kind::kCall:
        return 1 + (facts(e.rule).copied ? facts(e.rule).size : 1);
      case Kind::kAutomaton:
        return static_cast<std::int64_t>(e.automaton->states.size());
    }
    return 1;
  }

  Status build() {
    std::int64_t states = 0;
    for (const int r : order_) {
      Facts& f = facts(r);
      f.size = size_of(rule(r).body);
      f.copied = !f.recursive && !rule(r).shared && r != grammar_.root && f.size <= kInlineSize;
      if (f.copied) continue;  // built where it is called
      // Without copies where they would make one rule too large.
      const bool copies = f.size <= kInlineTotal;
      auto built = build_automaton(rule(r).body, [&](int called) -> const Expr* {
        return facts(called).copied && (copies || rule(called).body.parts.empty())
                   ? &rule(called).body
                   : nullptr;
      });
      if (!built) return std::unexpected(built.error().in(rule(r).name));
      f.automaton = std::move(*built);
      states += static_cast<std::int64_t>(f.automaton.states.size());
      if (states > static_cast<std::int64_t>(kMaxStates)) {
        return fail(ErrorCode::kResourceExhausted,
                    "up to {} the rules have more than {} states; make them smaller, or lower the "
                    "bounds of their repetitions",
                    rule(r).name, kMaxStates);
      }
    }
    // Copied rules that a large rule calls after all.
    for (const int r : order_) {
      for (const auto& state : facts(r).automaton.states) {
        for (const Call& c : state.calls) {
          if (!facts(c.rule).copied || !facts(c.rule).automaton.states.empty()) continue;
          WEFT_TRY(build_whole(c.rule));
        }
      }
    }
    return {};
  }
  Status build_whole(int r) {
    auto built = build_automaton(rule(r).body, [&](int called) -> const Expr* {
      return facts(called).copied ? &rule(called).body : nullptr;
    });
    if (!built) return std::unexpected(built.error().in(rule(r).name));
    facts(r).automaton = std::move(*built);
    return {};
  }

  // Takes out edges that no token spells and calls of rules that never end, until
  // nothing changes; then a rule without a way to its end is refused.
  Status prune() {
    for (Facts& f : facts_) {
      for (auto& state : f.automaton.states) {
        std::vector<Edge> kept;
        for (const Edge& e : state.edges) {
          for (int b = e.first; b <= e.last; ++b) {
            if (!bytes_[static_cast<std::size_t>(b)]) continue;
            const auto byte = static_cast<std::uint8_t>(b);
            if (!kept.empty() && kept.back().to == e.to && kept.back().last + 1 == b) {
              kept.back().last = byte;
            } else {
              kept.push_back({byte, byte, e.to});
            }
          }
        }
        state.edges = std::move(kept);
      }
    }
    // The automata's own calls: those of copied rules are inside.
    std::vector<std::vector<int>> callers(facts_.size());
    for (int r = 0; r < rules(); ++r) {
      for (const auto& state : facts(r).automaton.states) {
        for (const Call& c : state.calls) callers[static_cast<std::size_t>(c.rule)].push_back(r);
      }
    }
    spread(callers, [&](int r) {
      if (facts(r).productive || !ends(facts(r).automaton)) return false;
      return facts(r).productive = true;
    });
    if (!facts(grammar_.root).productive) return never_ends();
    for (Facts& f : facts_) {
      for (auto& state : f.automaton.states) {
        std::erase_if(state.calls, [&](const Call& c) { return !facts(c.rule).productive; });
      }
      f.automaton = minimised(f.automaton);
    }
    // A rule that is called and never ends is a mistake, even if there is a way round it.
    for (const int r : order_) {
      if (!facts(r).copied && !facts(r).productive) return never_ends_rule(r);
    }
    return {};
  }
  // Whether state 0 reaches a final state by edges and calls of productive rules.
  bool ends(const Automaton& a) const {
    if (a.states.empty()) return false;
    std::vector<char> seen(a.states.size(), 0);
    std::vector<std::int32_t> stack{0};
    while (!stack.empty()) {
      const auto s = static_cast<std::size_t>(stack.back());
      stack.pop_back();
      if (std::exchange(seen[s], 1) != 0) continue;
      if (a.states[s].final) return true;
      for (const Edge& e : a.states[s].edges) stack.push_back(e.to);
      for (const Call& c : a.states[s].calls) {
        if (facts(c.rule).productive) stack.push_back(c.to);
      }
    }
    return false;
  }
  Status never_ends() const {
    for (const int r : order_) {
      if (!facts(r).copied && !facts(r).productive) return never_ends_rule(r);
    }
    return never_ends_rule(grammar_.root);
  }
  Status never_ends_rule(int r) const {
    return fail(ErrorCode::kInvalidArgument,
                "{} can never end: every way through it calls a rule that does not end, or needs "
                "a character that no token of this vocabulary has",
                rule(r).name);
  }

  Machine flatten() {
    Machine out;
    out.start.assign(facts_.size(), -1);
    std::vector<std::int32_t> offset(facts_.size(), -1);
    std::int32_t next = 0;
    for (std::size_t r = 0; r < facts_.size(); ++r) {
      if (facts_[r].automaton.states.empty()) continue;
      offset[r] = out.start[r] = next;
      next += static_cast<std::int32_t>(facts_[r].automaton.states.size());
    }
    for (std::size_t r = 0; r < facts_.size(); ++r) {
      for (Automaton::State& state : facts_[r].automaton.states) {
        for (Edge& e : state.edges) e.to += offset[r];
        for (Call& c : state.calls) c.to += offset[r];
        out.flags.push_back(
            {state.final, state.final && state.edges.empty() && state.calls.empty()});
        out.states.push_back(std::move(state));
      }
    }
    out.root = out.start[static_cast<std::size_t>(grammar_.root)];
    return out;
  }

  const Grammar& grammar_;
  const std::bitset<256>& bytes_;
  std::vector<Facts> facts_;
  std::vector<std::vector<int>> callers_;
  std::vector<int> order_;
};

}  // namespace

Result<Machine> compile(const Grammar& grammar, const std::bitset<256>& bytes) {
  WEFT_CHECK(grammar.root >= 0 && static_cast<std::size_t>(grammar.root) < grammar.rules.size());
  return Compiler(grammar, bytes).run();
}

}  // namespace weft::serve::constrain
