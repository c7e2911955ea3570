// Element-wise reductions, and the one order in which more than two are added.
//
// The order is a binary tree over logical indices 0..n-1: a node covers an aligned
// range of 2^k indices, its value is left op right, and a missing right half is
// skipped, not added as zero (easyscale's canonical reduction, arXiv 2208.14228 and
// its extension to ranges). So the bits of a sum depend on the indices only, never on
// which process holds them. bf16 and f16 are combined in f32 and rounded to nearest
// even at each node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weft/base/dtype.h"
#include "weft/base/result.h"

namespace weft::comm {

enum class ReduceOp : std::uint8_t { kSum, kProduct, kMin, kMax };
std::string_view to_string(ReduceOp op);

// to[i] = a[i] op b[i] for n elements; `to` may be `a` or `b`.
using Combine = void (*)(void* to, const void* a, const void* b, std::size_t n);

// The fastest form on this CPU; all forms give the same bits. kUnsupported for
// quantised types and bool.
Result<Combine> combine_of(DType type, ReduceOp op);

// Copies past the caches, for outputs that do not fit them; plain where the CPU lacks
// the instructions. The areas must not overlap.
void stream_copy(void* to, const void* from, std::size_t bytes);

// A node of the tree: indices [first, first + count), count a power of two and first a
// multiple of it, or fewer where the indices end.
struct TreeNode {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool operator==(const TreeNode&) const = default;
};

// The largest nodes that together cover [first, first + count) of `total` indices, in order.
std::vector<TreeNode> tree_cover(std::uint32_t first, std::uint32_t count, std::uint32_t total);

// Combines the values of `nodes` (which cover 0..total-1, or one aligned range, in
// order) into `to`, up to the tree's order. values[i] are `n` elements of nodes[i].
// `to` may not overlap a value; `scratch` holds log2(total)+2 times n elements.
void tree_combine(Combine combine, std::span<const TreeNode> nodes,
                  std::span<const std::byte* const> values, std::size_t n,
                  std::size_t element_bytes, std::byte* to, std::byte* scratch);

}  // namespace weft::comm
