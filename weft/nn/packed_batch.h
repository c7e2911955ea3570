// PackedBatch: token sequences laid one after the other, without padding, for the
// training forward and backward passes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/base/thread_pool.h"
#include "weft/nn/attention.h"
#include "weft/nn/ops_backward.h"

namespace weft::nn {

// Row r runs token tokens[r] at positions[r]. A unit is what micro-batches never
// split: one sequence, or a shared prefix and the sequences that continue it.
struct PackedBatch {
  std::vector<std::int32_t> tokens, positions;
  std::vector<Segment> segments;    // in row order, covering all rows
  std::vector<std::int64_t> units;  // rows of each, in order
  // What is wanted: the log-probability of target_tokens[i] after row target_rows[i].
  std::vector<std::int64_t> target_rows;  // ascending
  std::vector<std::int32_t> target_tokens;
  std::vector<std::int64_t> target_units;  // targets of each unit that has any

  std::int64_t rows() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t targets() const { return static_cast<std::int64_t>(target_rows.size()); }
};

// Blocks of keys and values of one layer for the segments of a batch, in the
// layout of attention(): a child segment uses the full blocks of its parent and a
// copy of its last, partly filled one. Reused from layer to layer; not thread-safe.
class SegmentKv {
 public:
  SegmentKv(const PackedBatch& batch, std::int64_t kv_heads, std::int64_t head_dim);

  // Attention of all rows. qkv rows are [heads + 2 kv_heads, head_dim], rotated; out is
  // [rows, heads * head_dim], logsumexp [rows, heads].
  void attend(const AttentionShape& shape, const float* qkv, float* out, float* logsumexp,
              ThreadPool& pool);

 private:
  struct Copy {
    std::int64_t from, to;  // slots
  };
  const PackedBatch& batch_;
  std::int64_t block_floats_;
  std::vector<float> keys_, values_;               // [slots][block_floats_]
  std::vector<std::vector<std::int64_t>> tables_;  // slots of each segment's blocks
  std::vector<std::vector<Copy>> copies_;          // done before a segment's rows are stored
};

}  // namespace weft::nn
