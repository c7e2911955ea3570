#include "weft/nn/attention.h"

#include <algorithm>
#include <vector>

#include "weft/base/result.h"
#include "weft/nn/cpu/attention_split.h"
#include "weft/nn/cpu/dispatch.h"
#include "weft/nn/ops.h"

namespace weft::nn {
namespace {

// Rows [begin, end) of one sequence for one kv head.
struct Task {
  std::int64_t begin, end, kv_head;
  std::int64_t cost;  // keys read, all rows together
};

std::int64_t visible_keys(const AttentionShape& shape, std::int64_t position) {
  return shape.window > 0 ? std::min(position + 1, shape.window) : position + 1;
}

// Queries that a kernel takes at a time.
std::int64_t most_items(const AttentionShape& shape) {
  return shape.layout == KvLayout::kSplit ? kSplitAttentionItems : kAttentionItems;
}

// Asks for the first blocks of a task of few rows, which would wait for memory: each
// decoding sequence has its own.
void prefetch_task(const AttentionShape& shape, std::span<const KvBlocks> sequences,
                   std::span<const QueryRow> rows, const Task& task) {
  constexpr std::int64_t kBlocks = 2;
  if (task.end - task.begin > 4) return;
  const QueryRow& row = rows[static_cast<std::size_t>(task.begin)];
  const KvBlocks& kv = sequences[static_cast<std::size_t>(row.sequence)];
  const std::int64_t last = row.position / kAttentionBlock;
  const std::int64_t first =
      shape.window > 0 ? std::max(row.position - shape.window, std::int64_t{0}) / kAttentionBlock
                       : 0;
  const std::int64_t floats = shape.head_dim * kAttentionBlock;
  for (std::int64_t b = first; b <= std::min(last, first + kBlocks - 1); ++b) {
    for (const float* block :
         {kv.keys[static_cast<std::size_t>(b)], kv.values[static_cast<std::size_t>(b)]}) {
      for (std::int64_t i = 0; i < floats; i += 16) {
        __builtin_prefetch(block + task.kv_head * floats + i, 0, 2);
      }
    }
  }
}

void run_task(const AttentionShape& shape, std::span<const KvBlocks> sequences,
              std::span<const QueryRow> rows, const Task& task, float* scratch) {
  constexpr std::int64_t kMost = std::max(kSplitAttentionItems, kAttentionItems);
  const auto kernel =
      shape.layout == KvLayout::kSplit ? attention_split_amx : row_kernels().attention;
  const std::int64_t group = shape.heads / shape.kv_heads;
  const KvBlocks& kv = sequences[static_cast<std::size_t>(rows[task.begin].sequence)];
  AttentionItem items[kMost];
  float maxima[kMost], sums[kMost];
  // A group larger than the items of one chunk is cut.
  for (std::int64_t head = 0; head < group;) {
    const std::int64_t heads = std::min(group - head, most_items(shape) / (task.end - task.begin));
    std::int64_t count = 0;
    for (std::int64_t row = task.begin; row < task.end; ++row) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t at = (task.kv_head * group + head + h) * shape.head_dim;
        items[count++] = {rows[row].q + at, rows[row].out + at, rows[row].position};
      }
    }
    const AttentionChunk chunk{kv.keys.data(),
                               kv.values.data(),
                               task.kv_head * shape.head_dim * kAttentionBlock,
                               shape.head_dim,
                               shape.scale,
                               shape.window,
                               items,
                               count,
                               maxima,
                               sums,
                               scratch};
    kernel(chunk);
    count = 0;
    for (std::int64_t row = task.begin; row < task.end; ++row) {
      for (std::int64_t h = 0; h < heads; ++h, ++count) {
        if (rows[row].logsumexp == nullptr) continue;
        rows[row].logsumexp[task.kv_head * group + head + h] = maxima[count] + log_f32(sums[count]);
      }
    }
    head += heads;
  }
}

}  // namespace

void merge(Partial& a, const Partial& b, std::int64_t head_dim) {
  const float top = a.max > b.max ? a.max : b.max;
  const float keep = exp_f32(a.max - top), gain = exp_f32(b.max - top);
  a.sum = __builtin_fmaf(a.sum, keep, b.sum * gain);
  for (std::int64_t d = 0; d < head_dim; ++d) {
    a.out[d] = __builtin_fmaf(a.out[d], keep, b.out[d] * gain);
  }
  a.max = top;
}

KvLayout kv_layout(bool bf16, std::int64_t head_dim) {
  return bf16 && head_dim % 32 == 0 && cpu_isa() == Isa::kAmx ? KvLayout::kSplit : KvLayout::kF32;
}

void store_kv(const AttentionShape& shape, const float* k, const float* v,
              std::int64_t position_in_block, float* key_block, float* value_block) {
  const std::int64_t head_dim = shape.head_dim;
  for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
    if (shape.layout == KvLayout::kSplit) {
      const std::int64_t at = head * head_dim * kAttentionBlock;
      store_kv_split_amx(k + head * head_dim, v + head * head_dim, head_dim, position_in_block,
                         key_block + at, value_block + at);
      continue;
    }
    float* keys = key_block + head * head_dim * kAttentionBlock + position_in_block;
    float* values = value_block + (head * kAttentionBlock + position_in_block) * head_dim;
    for (std::int64_t d = 0; d < head_dim; ++d) keys[d * kAttentionBlock] = k[head * head_dim + d];
    std::copy_n(v + head * head_dim, head_dim, values);
  }
}

void attention(const AttentionShape& shape, std::span<const KvBlocks> sequences,
               std::span<const QueryRow> rows, ThreadPool& pool) {
  if (rows.empty()) return;
  WEFT_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "{} heads over {} kv heads",
             shape.heads, shape.kv_heads);
  WEFT_CHECK(shape.scale > 0.0F, "scale {}", shape.scale);
  const std::int64_t group = shape.heads / shape.kv_heads;
  const std::int64_t chunk_rows = std::max<std::int64_t>(most_items(shape) / group, 1);
  const auto count = static_cast<std::int64_t>(rows.size());
  std::vector<Task> tasks;
  std::int64_t total = 0;
  for (std::int64_t begin = 0; begin < count;) {
    std::int64_t end = begin, keys = 0;
    while (end < count && end - begin < chunk_rows && rows[end].sequence == rows[begin].sequence) {
      const std::int64_t blocks = rows[end].position / kAttentionBlock + 1;
      const KvBlocks& kv = sequences[static_cast<std::size_t>(rows[end].sequence)];
      WEFT_CHECK(rows[end].position >= 0 && blocks <= std::ssize(kv.keys) &&
                     blocks <= std::ssize(kv.values),
                 "row {} at position {} has {} key blocks", end, rows[end].position,
                 kv.keys.size());
      keys += visible_keys(shape, rows[end].position);
      ++end;
    }
    for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
      tasks.push_back({begin, end, head, keys});
      total += keys;
    }
    begin = end;
  }
  // One piece a thread, cut where the cost so far passes the piece's share.
  const std::int64_t work = total * group * shape.head_dim;
  const std::int64_t pieces =
      std::clamp<std::int64_t>(work / (std::int64_t{1} << 14), 1, pool.threads());
  std::vector<std::int64_t> cuts{0};
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    sum += tasks[i].cost;
    while (std::ssize(cuts) < pieces && sum * pieces >= total * std::ssize(cuts)) {
      cuts.push_back(static_cast<std::int64_t>(i) + 1);
    }
  }
  while (std::ssize(cuts) <= pieces) cuts.push_back(std::ssize(tasks));
  pool.parallel_for(pieces, 1, [&](std::int64_t first, std::int64_t last) {
    thread_local std::vector<float> scratch;
    scratch.resize(static_cast<std::size_t>(attention_scratch_floats(shape.head_dim)));
    for (std::int64_t i = cuts[static_cast<std::size_t>(first)];
         i < cuts[static_cast<std::size_t>(last)]; ++i) {
      if (i + 1 < cuts[static_cast<std::size_t>(last)]) {
        prefetch_task(shape, sequences, rows, tasks[static_cast<std::size_t>(i + 1)]);
      }
      run_task(shape, sequences, rows, tasks[static_cast<std::size_t>(i)], scratch.data());
    }
  });
}

}  // namespace weft::nn
