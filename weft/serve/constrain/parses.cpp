#include "weft/serve/constrain/parses.h"

#include <algorithm>

#include "weft/base/hash.h"

namespace weft::serve::constrain {

std::size_t Parses::ItemsHash::operator()(const std::pair<std::vector<Item>, bool>& key) const {
  return static_cast<std::size_t>(xxh3_64(std::as_bytes(std::span(key.first)), key.second ? 1 : 0));
}

Parses::Config Parses::clear(Config keep) {
  // The stacks of the kept configuration are rebuilt from its own copies.
  std::vector<std::pair<std::int32_t, std::vector<std::int32_t>>> items;
  bool accepting = false;
  if (keep >= 0) {
    const Node& node = nodes_[static_cast<std::size_t>(keep)];
    accepting = node.accepting;
    for (const Item& item : node.items) {
      std::vector<std::int32_t> states;
      for (std::int32_t s = item.stack; s != 0; s = stacks_[static_cast<std::size_t>(s)].below) {
        states.push_back(stacks_[static_cast<std::size_t>(s)].state);
      }
      items.emplace_back(item.state, std::move(states));
    }
  }
  nodes_.clear();
  stacks_.assign(1, {-1, -1, 0});
  known_.clear();
  known_stacks_.clear();
  popped_.clear();
  overflow_ = false;
  if (keep < 0) return kDead;
  Node node;
  node.accepting = accepting;
  node.next.fill(kUnknown);
  for (const auto& [state, states] : items) {
    std::int32_t stack = 0;
    for (auto s = states.rbegin(); s != states.rend(); ++s) stack = push(*s, stack);
    node.items.push_back({state, stack});
  }
  std::ranges::sort(node.items);
  known_.emplace(std::pair(node.items, accepting), 0);
  nodes_.push_back(std::move(node));
  return 0;
}

std::int32_t Parses::push(std::int32_t state, std::int32_t below) {
  const std::uint64_t key = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(state)) << 32U) |
                            static_cast<std::uint32_t>(below);
  const auto [at, added] =
      known_stacks_.try_emplace(key, static_cast<std::int32_t>(stacks_.size()));
  if (added) {
    const std::int32_t depth = stacks_[static_cast<std::size_t>(below)].depth + 1;
    stacks_.push_back({state, below, depth});
  }
  return at->second;
}

// Whether `items` does not hold `item` yet. `seen_` takes over from comparing at kFew.
bool Parses::is_new(const std::vector<Item>& items, Item item) {
  constexpr std::size_t kFew = 24;
  if (items.size() < kFew) return std::ranges::find(items, item) == items.end();
  if (seen_.size() < kFew) {
    for (const Item& known : items) seen_.insert(key_of(known));
  }
  return seen_.insert(key_of(item)).second;
}

Parses::Config Parses::close(std::vector<Item> items) {
  bool accepting = false;
  scratch_.clear();
  seen_.clear();
  // `items` grows while it is walked; every pair is looked at once.
  for (std::size_t i = 0; i < items.size(); ++i) {
    ++work_;
    if (items.size() > 4 * kMaxItems || work_ > kMaxWork) {
      overflow_ = true;
      return kDead;
    }
    const Item item = items[i];
    const auto add = [&](Item next) {
      if (is_new(items, next)) items.push_back(next);
    };
    const Automaton::State& state = machine_.states[static_cast<std::size_t>(item.state)];
    for (const Call& call : state.calls) {
      std::int32_t stack = item.stack;
      if (!machine_.flags[static_cast<std::size_t>(call.to)].returns_only) {
        if (stacks_[static_cast<std::size_t>(stack)].depth >= kMaxDepth) continue;
        stack = push(call.to, stack);
      }
      add({machine_.start[static_cast<std::size_t>(call.rule)], stack});
    }
    if (state.final) {
      if (item.stack == 0) {
        accepting = true;
      } else {
        const Stack& top = stacks_[static_cast<std::size_t>(item.stack)];
        add({top.state, top.below});
      }
    }
    if (!state.edges.empty()) scratch_.push_back(item);
  }
  if (scratch_.empty() && !accepting) return kDead;
  if (scratch_.size() > kMaxItems || nodes_.size() >= kMaxConfigs) {
    overflow_ = true;
    return kDead;
  }
  std::ranges::sort(scratch_);
  const auto [at, added] =
      known_.try_emplace(std::pair(scratch_, accepting), static_cast<Config>(nodes_.size()));
  if (added) {
    Node node;
    node.items = scratch_;
    node.accepting = accepting;
    node.next.fill(kUnknown);
    nodes_.push_back(std::move(node));
  }
  return at->second;
}

Parses::Config Parses::take_step(Config config, std::uint8_t byte) {
  std::vector<Item> next;
  seen_.clear();
  for (const Item& item : nodes_[static_cast<std::size_t>(config)].items) {
    const auto& edges = machine_.states[static_cast<std::size_t>(item.state)].edges;
    const auto edge = std::ranges::lower_bound(edges, byte, {}, &Edge::last);
    if (edge == edges.end() || edge->first > byte) continue;
    const Item to{edge->to, item.stack};
    if (is_new(next, to)) next.push_back(to);
  }
  const Config to = next.empty() ? kDead : close(std::move(next));
  if (!overflow_) nodes_[static_cast<std::size_t>(config)].next[byte] = to;
  return to;
}

Parses::Config Parses::after_pop(const Item& item) {
  if (item.stack == 0) return kDead;
  if (const auto at = popped_.find(item.stack); at != popped_.end()) return at->second;
  const Stack top = stacks_[static_cast<std::size_t>(item.stack)];
  const Config to = close({{top.state, top.below}});
  if (!overflow_) popped_.emplace(item.stack, to);
  return to;
}

}  // namespace weft::serve::constrain
