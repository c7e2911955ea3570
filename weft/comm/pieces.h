// How the ranks of a reduction share its logical ranks and its elements. Private to
// the backends.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/result.h"
#include "weft/comm/backend.h"
#include "weft/comm/reduce.h"

namespace weft::comm {

struct LogicalRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

// The pieces (nodes of the tree) that each rank brings into a reduction, in order.
struct Pieces {
  std::vector<TreeNode> nodes;
  std::vector<std::uint32_t> owner;  // the rank of each
  std::vector<std::uint32_t> place;  // its number among its owner's
  std::uint32_t most = 1;            // of one rank
  std::vector<std::uint32_t> held;   // how many each rank has

  static Pieces one_each(std::uint32_t ranks);
  // kInvalidArgument, naming the rank, unless the ranges follow each other from 0 to `total`.
  static Result<Pieces> of(std::span<const LogicalRange> ranges, std::uint32_t total,
                           std::uint64_t operation);
};

// The value of one of this rank's pieces for elements [at, at + n): an input itself or
// its inputs combined into `room` (n elements); `scratch` as for tree_combine.
const std::byte* own_piece(const Work& work, const TreeNode& node, std::uint64_t at,
                           std::uint64_t n, std::byte* room, std::byte* scratch);

// Where part j of block b lies in a vector of `total` elements, when a block holds
// `ranks` parts of at most `chunk` elements and parts are multiples of `align`.
struct Cut {
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
};
Cut cut(std::uint64_t total, std::uint64_t chunk, std::uint32_t ranks, std::uint64_t b,
        std::uint32_t j, std::uint64_t align);

// all[(2r) * ranks + j] is what r sends to j, all[(2r+1) * ranks + j] what r expects from j.
Status check_exchange(std::span<const std::uint64_t> all, std::uint32_t ranks,
                      std::uint64_t operation);

}  // namespace weft::comm
