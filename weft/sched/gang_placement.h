// Where one gang goes, given the free GPUs of the nodes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/sched/view.h"

namespace weft::sched {

enum class Locality : std::uint8_t {
  kCompact,  // the fewest nodes that could ever hold the gang, or none
  kAny,      // as few nodes as are free now
};

// Free GPUs by node, with the nodes of each free count in a bitmap: finding the fullest
// node that fits costs O(nodes / 64), so a 375-node cluster is placed in tens of
// nanoseconds, and a decision that starts nothing costs O(1).
class FreeNodes {
 public:
  FreeNodes(std::span<const std::int32_t> node_gpus, std::span<const std::int32_t> node_free);

  std::int64_t total() const { return total_; }
  std::int32_t largest_node() const { return largest_; }  // GPUs of the largest node that is up
  std::int32_t most_free() const;

  // Empty: it does not fit at that locality. Best fit: one node with the least that
  // suffices; else whole nodes and the rest by best fit; for kAny then the freest first.
  std::vector<NodeShare> place(std::int32_t gpus, Locality locality) const;
  void take(std::span<const NodeShare> shares);
  void release(std::span<const NodeShare> shares);

 private:
  std::uint64_t& word_of(std::int32_t free, std::size_t node);
  void move(std::int32_t node, std::int32_t to);
  std::vector<std::int32_t> free_;
  std::size_t words_ = 0;             // of a bitmap
  std::vector<std::uint64_t> nodes_;  // a bitmap of nodes for each free count
  std::vector<std::int32_t> count_;   // nodes with that free count
  std::int64_t total_ = 0;
  std::int32_t largest_ = 0;
};

// Whether the shares are on no more nodes than `gpus` needs on nodes of `largest`.
bool is_compact(std::size_t nodes, std::int32_t gpus, std::int32_t largest);

}  // namespace weft::sched
