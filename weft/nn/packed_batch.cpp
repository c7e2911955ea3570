#include "weft/nn/packed_batch.h"

#include <algorithm>

#include "weft/base/result.h"

namespace weft::nn {

SegmentKv::SegmentKv(const PackedBatch& batch, std::int64_t kv_heads, std::int64_t head_dim)
    : batch_(batch), block_floats_(kv_heads * head_dim * kAttentionBlock) {
  std::int64_t slots = 0;
  for (const Segment& segment : batch.segments) {
    std::vector<std::int64_t> table;
    std::vector<Copy> copies;
    if (segment.parent >= 0) {
      const auto& parent = tables_[static_cast<std::size_t>(segment.parent)];
      const std::int64_t full = segment.first_position / kAttentionBlock;
      table.assign(parent.begin(), parent.begin() + full);
      if (segment.first_position % kAttentionBlock != 0) {
        copies.push_back({parent[static_cast<std::size_t>(full)], slots});
        table.push_back(slots++);
      }
    }
    const std::int64_t end = segment.first_position + segment.end - segment.begin;
    while (static_cast<std::int64_t>(table.size()) * kAttentionBlock < end) {
      table.push_back(slots++);
    }
    tables_.push_back(std::move(table));
    copies_.push_back(std::move(copies));
  }
  // Zero once: positions that no row fills stay zero in every layer.
  keys_.resize(static_cast<std::size_t>(slots * block_floats_));
  values_.resize(static_cast<std::size_t>(slots * block_floats_));
}

void SegmentKv::attend(const AttentionShape& shape, const float* qkv, float* out, float* logsumexp,
                       ThreadPool& pool) {
  const std::int64_t q_width = shape.heads * shape.head_dim;
  const std::int64_t k_width = shape.kv_heads * shape.head_dim;
  const std::int64_t ld = q_width + 2 * k_width;
  const auto count = static_cast<std::int64_t>(batch_.segments.size());
  const auto store = [&](std::int64_t index) {
    const Segment& segment = batch_.segments[static_cast<std::size_t>(index)];
    for (const Copy& copy : copies_[static_cast<std::size_t>(index)]) {
      std::copy_n(&keys_[copy.from * block_floats_], block_floats_,
                  &keys_[copy.to * block_floats_]);
      std::copy_n(&values_[copy.from * block_floats_], block_floats_,
                  &values_[copy.to * block_floats_]);
    }
    for (std::int64_t row = segment.begin; row < segment.end; ++row) {
      const std::int64_t position = segment.first_position + row - segment.begin;
      const std::int64_t slot = tables_[static_cast<std::size_t>(index)]
                                       [static_cast<std::size_t>(position / kAttentionBlock)];
      const float* k = qkv + row * ld + q_width;
      store_kv(shape, k, k + k_width, position % kAttentionBlock, &keys_[slot * block_floats_],
               &values_[slot * block_floats_]);
    }
  };
  // Parents first: their children copy a block of theirs.
  for (const bool children : {false, true}) {
    pool.parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        if ((batch_.segments[static_cast<std::size_t>(i)].parent >= 0) == children) store(i);
      }
    });
  }

  std::vector<const float*> keys, values;
  for (const auto& table : tables_) {
    for (const std::int64_t slot : table) {
      keys.push_back(&keys_[slot * block_floats_]);
      values.push_back(&values_[slot * block_floats_]);
    }
  }
  std::vector<KvBlocks> sequences;
  std::vector<QueryRow> queries;
  std::size_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Segment& segment = batch_.segments[static_cast<std::size_t>(i)];
    const std::size_t blocks = tables_[static_cast<std::size_t>(i)].size();
    sequences.push_back(
        {std::span(keys).subspan(at, blocks), std::span(values).subspan(at, blocks)});
    at += blocks;
    for (std::int64_t row = segment.begin; row < segment.end; ++row) {
      queries.push_back({qkv + row * ld, out + row * q_width, logsumexp + row * shape.heads,
                         static_cast<std::int32_t>(i),
                         static_cast<std::int32_t>(segment.first_position + row - segment.begin)});
    }
  }
  attention(shape, sequences, queries, pool);
}

}  // namespace weft::nn
