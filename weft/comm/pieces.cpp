#include "weft/comm/pieces.h"

#include <algorithm>

namespace weft::comm {

Pieces Pieces::one_each(std::uint32_t ranks) {
  Pieces pieces;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    pieces.nodes.push_back({r, 1});
    pieces.owner.push_back(r);
    pieces.place.push_back(0);
  }
  pieces.held.assign(ranks, 1);
  return pieces;
}

Result<Pieces> Pieces::of(std::span<const LogicalRange> ranges, std::uint32_t total,
                          std::uint64_t operation) {
  Pieces pieces;
  std::uint32_t next = 0;
  for (std::uint32_t r = 0; r < ranges.size(); ++r) {
    const LogicalRange range = ranges[r];
    if (range.first != next || range.count == 0 || range.count > total - next) {
      return fail(ErrorCode::kInvalidArgument,
                  "operation {}: rank {} holds the logical ranks {} to {}; they must go on from {} "
                  "and stay below {}",
                  operation, r, range.first, range.first + range.count, next, total);
    }
    const auto cover = tree_cover(range.first, range.count, total);
    for (std::uint32_t i = 0; i < cover.size(); ++i) {
      pieces.nodes.push_back(cover[i]);
      pieces.owner.push_back(r);
      pieces.place.push_back(i);
    }
    pieces.held.push_back(static_cast<std::uint32_t>(cover.size()));
    pieces.most = std::max(pieces.most, pieces.held.back());
    next += range.count;
  }
  if (next != total) {
    return fail(ErrorCode::kInvalidArgument,
                "operation {}: the ranks hold {} of {} logical ranks; give each to one rank",
                operation, next, total);
  }
  return pieces;
}

const std::byte* own_piece(const Work& work, const TreeNode& node, std::uint64_t at,
                           std::uint64_t n, std::byte* room, std::byte* scratch) {
  const std::size_t offset = at * work.element;
  if (work.inputs.empty()) return work.in + offset;
  const std::uint32_t first = node.first - work.logical_first;
  if (node.count == 1) return work.inputs[first] + offset;
  TreeNode leaves[64];
  const std::byte* values[64];
  WEFT_CHECK(node.count <= std::size(leaves));  // Communicator refuses more inputs
  for (std::uint32_t i = 0; i < node.count; ++i) {
    leaves[i] = {node.first + i, 1};
    values[i] = work.inputs[first + i] + offset;
  }
  tree_combine(work.combine, {leaves, node.count}, {values, node.count}, n, work.element, room,
               scratch);
  return room;
}

Cut cut(std::uint64_t total, std::uint64_t chunk, std::uint32_t ranks, std::uint64_t b,
        std::uint32_t j, std::uint64_t align) {
  const std::uint64_t begin = std::min(total, b * chunk * ranks);
  const std::uint64_t here = std::min(total - begin, chunk * ranks);
  const std::uint64_t each =
      std::min(chunk, ((here + ranks - 1) / ranks + align - 1) / align * align);
  const std::uint64_t at = std::min(here, each * j);
  return {begin + at, std::min(each, here - at)};
}

Status check_exchange(std::span<const std::uint64_t> all, std::uint32_t ranks,
                      std::uint64_t operation) {
  for (std::uint32_t r = 0; r < ranks; ++r) {
    for (std::uint32_t j = 0; j < ranks; ++j) {
      const std::uint64_t sent = all[2 * r * ranks + j];
      const std::uint64_t expected = all[(2 * j + 1) * ranks + r];
      if (sent == expected) continue;
      return fail(
          ErrorCode::kInvalidArgument,
          "operation {}: all-to-all: rank {} sends {} elements to rank {}, which expects {}",
          operation, r, sent, j, expected);
    }
  }
  return {};
}

}  // namespace weft::comm
