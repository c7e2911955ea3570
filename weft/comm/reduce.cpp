#include "weft/comm/reduce.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "weft/comm/cpu_level.h"

#define WEFT_REDUCE_NAMESPACE baseline
#include "weft/comm/reduce_body.h"

namespace weft::comm {

Combine combine_avx2(DType type, ReduceOp op);
Combine combine_avx512(DType type, ReduceOp op);
void stream_lines_avx2(void* to, const void* from, std::size_t bytes);
void stream_lines_avx512(void* to, const void* from, std::size_t bytes);

std::string_view to_string(ReduceOp op) {
  constexpr std::string_view kNames[] = {"sum", "product", "min", "max"};
  return kNames[static_cast<std::size_t>(op)];
}

Result<Combine> combine_of(DType type, ReduceOp op) {
  Combine combine = nullptr;
  switch (cpu_level()) {
    case CpuLevel::kAvx512:
      combine = combine_avx512(type, op);
      break;
    case CpuLevel::kAvx2:
      combine = combine_avx2(type, op);
      break;
    case CpuLevel::kBaseline:
      combine = baseline::choose(type, op);
      break;
  }
  if (combine == nullptr) {
    return fail(ErrorCode::kUnsupported, "{} of {}: reduce f32, f64, bf16, f16 or integers",
                to_string(op), to_string(type));
  }
  return combine;
}

void stream_copy(void* to, const void* from, std::size_t bytes) {
  auto* t = static_cast<std::byte*>(to);
  const auto* f = static_cast<const std::byte*>(from);
  const std::size_t head = (64 - reinterpret_cast<std::uintptr_t>(t) % 64) % 64;
  if (bytes < 4096 || cpu_level() == CpuLevel::kBaseline) {
    if (bytes > 0) std::memcpy(t, f, bytes);
    return;
  }
  std::memcpy(t, f, head);
  const std::size_t lines = (bytes - head) / 64 * 64;
  (cpu_level() == CpuLevel::kAvx512 ? stream_lines_avx512 : stream_lines_avx2)(t + head, f + head,
                                                                               lines);
  std::memcpy(t + head + lines, f + head + lines, bytes - head - lines);
}

std::vector<TreeNode> tree_cover(std::uint32_t first, std::uint32_t count, std::uint32_t total) {
  std::vector<TreeNode> cover;
  const std::uint32_t end = first + count;
  while (first < end) {
    // The largest aligned node that starts here and does not pass `end`; one that
    // passes the last index counts as ending there.
    std::uint32_t size = first == 0 ? std::bit_ceil(std::max(total, 1U)) : first & (~first + 1);
    while (size > 1 && std::min(first + size, total) > end) size /= 2;
    cover.push_back({first, std::min(size, total - first)});
    first += cover.back().count;
  }
  return cover;
}

void tree_combine(Combine combine, std::span<const TreeNode> nodes,
                  std::span<const std::byte* const> values, std::size_t n,
                  std::size_t element_bytes, std::byte* to, std::byte* scratch) {
  struct Entry {
    TreeNode node;
    const std::byte* value;
    int slot;  // of scratch, or -1
  };
  const std::size_t bytes = n * element_bytes;
  Entry stack[34];
  std::uint64_t used = 0;  // scratch slots in use
  std::size_t depth = 0;
  if (nodes.size() == 1) {
    if (bytes > 0) std::memcpy(to, values[0], bytes);
    return;
  }
  // Merges the two on top; the last merge of all goes to `to`.
  const auto merge = [&](bool last) {
    Entry& a = stack[depth - 2];
    const Entry b = stack[depth - 1];
    int slot = -1;
    std::byte* target = to;
    if (!last) {
      slot = a.slot >= 0 ? a.slot : b.slot >= 0 ? b.slot : std::countr_one(used);
      target = scratch + static_cast<std::size_t>(slot) * bytes;
    }
    combine(target, a.value, b.value, n);
    if (a.slot >= 0) used &= ~(std::uint64_t{1} << a.slot);
    if (b.slot >= 0) used &= ~(std::uint64_t{1} << b.slot);
    if (slot >= 0) used |= std::uint64_t{1} << slot;
    a = {{a.node.first, a.node.count + b.node.count}, target, slot};
    --depth;
  };
  // Whether two neighbours are the halves of one node of full size.
  const auto siblings = [](const TreeNode& a, const TreeNode& b) {
    return a.count == b.count && std::has_single_bit(a.count) && a.first % (2 * a.count) == 0;
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    stack[depth++] = {nodes[i], values[i], -1};
    while (depth > 1 && siblings(stack[depth - 2].node, stack[depth - 1].node)) {
      merge(depth == 2 && i + 1 == nodes.size());
    }
  }
  // What is left ends at the last index: right halves that are not full.
  while (depth > 1) merge(depth == 2);
}

}  // namespace weft::comm
