// Parses: every way in which a machine can have read some bytes, explored as needed.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "weft/serve/constrain/machine.h"

namespace weft::serve::constrain {

// A configuration is the set of all (state, stack) pairs that the bytes read so far
// allow; equal sets have one number, and a step by a byte that was taken once is one
// look into a table: a deterministic automaton that grows as it is used. Stacks share
// their lower ends. For one thread.
class Parses {
 public:
  using Config = std::int32_t;
  static constexpr Config kDead = -1;
  // Stack 0 is the bottom.
  struct Item {
    std::int32_t state, stack;
    auto operator<=>(const Item&) const = default;
  };

  // Bounds: beyond, a step gives kDead and overflow() says so from then on.
  static constexpr std::size_t kMaxItems = 1024;   // at once: ambiguity
  static constexpr std::int32_t kMaxDepth = 1000;  // calls within calls
  static constexpr std::size_t kMaxConfigs = 50'000;
  static constexpr std::int64_t kMaxWork = 3'000'000;  // pairs looked at since allow_work()

  explicit Parses(const Machine& machine) : machine_(machine) { clear(); }

  // Forgets all numbers given so far; `keep` is known again under the number returned.
  Config clear(Config keep = kDead);

  Config begin(std::int32_t state) { return close({{state, 0}}); }
  Config step(Config config, std::uint8_t byte) {
    const std::int32_t known = nodes_[static_cast<std::size_t>(config)].next[byte];
    return known != kUnknown ? known : take_step(config, byte);
  }
  // Whether the bottom was reached: the whole text so far is one of the grammar.
  bool accepting(Config config) const { return nodes_[static_cast<std::size_t>(config)].accepting; }
  bool can_go_on(Config config) const {
    return !nodes_[static_cast<std::size_t>(config)].items.empty();
  }
  std::span<const Item> items(Config config) const {
    return nodes_[static_cast<std::size_t>(config)].items;
  }
  // Where an item goes on when its rule has ended; kDead at the bottom.
  Config after_pop(const Item& item);
  std::size_t configs() const { return nodes_.size(); }
  bool overflow() const { return overflow_; }
  void allow_work() { work_ = 0; }
  std::int64_t work() const { return work_; }

 private:
  static constexpr std::int32_t kUnknown = -2;
  struct Node {
    std::vector<Item> items;  // those with bytes to read, ascending
    bool accepting = false;
    std::array<std::int32_t, 256> next;
  };
  struct Stack {
    std::int32_t state, below, depth;
  };
  struct ItemsHash {
    std::size_t operator()(const std::pair<std::vector<Item>, bool>& key) const;
  };
  struct PairHash {
    std::size_t operator()(std::uint64_t x) const {
      return static_cast<std::size_t>((x ^ (x >> 31U)) * 0x9e3779b97f4a7c15U);
    }
  };

  Config take_step(Config config, std::uint8_t byte);
  // The items reached from these without reading a byte.
  Config close(std::vector<Item> items);
  bool is_new(const std::vector<Item>& items, Item item);
  static std::uint64_t key_of(Item item) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(item.state)) << 32U) |
           static_cast<std::uint32_t>(item.stack);
  }
  std::int32_t push(std::int32_t state, std::int32_t below);

  const Machine& machine_;
  std::vector<Node> nodes_;
  std::vector<Stack> stacks_;
  std::unordered_map<std::pair<std::vector<Item>, bool>, Config, ItemsHash> known_;
  std::unordered_map<std::uint64_t, std::int32_t, PairHash> known_stacks_;
  std::unordered_map<std::int32_t, Config> popped_;  // by stack
  std::vector<Item> scratch_;
  std::unordered_set<std::uint64_t, PairHash> seen_;
  std::int64_t work_ = 0;
  bool overflow_ = false;
};

}  // namespace weft::serve::constrain
