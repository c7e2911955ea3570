// Causal attention over paged keys and values, reduced over key blocks of
// kAttentionBlock positions aligned to absolute positions and merged in
// ascending order. So chunked prefill, paging and prefix sharing give the bits
// of the plain run.
#pragma once

#include <cstdint>
#include <span>

#include "weft/base/thread_pool.h"

namespace weft::nn {

inline constexpr std::int64_t kAttentionBlock = 32;

// Attention of one head over a part of the keys: out is the exp-weighted sum of
// values (not divided), max the largest score, sum of exp(score - max).
// Published as the (m, l, O) triple of online softmax (Milakov & Gimelshein 2018).
struct Partial {
  float max;
  float sum;
  float* out;  // [head_dim]
};
// a := a merged with b, where b's keys come after a's.
void merge(Partial& a, const Partial& b, std::int64_t head_dim);

// Where the keys and values of one sequence and one layer lie: block b holds
// positions [b * kAttentionBlock, ...). keys[b] points at [kv_heads, head_dim,
// kAttentionBlock] floats (transposed, so that a block of scores needs no
// horizontal sums), values[b] at [kv_heads, kAttentionBlock, head_dim] (pages of a
// pool or one array). Scores sum over head_dim in ascending order by fused
// multiply-add; so do the values over the positions of a block.
struct KvBlocks {
  std::span<const float* const> keys;
  std::span<const float* const> values;
};

// Writes one position's k and v ([kv_heads, head_dim] each) into its block.
void store_kv(const float* k, const float* v, std::int64_t kv_heads, std::int64_t head_dim,
              std::int64_t position_in_block, float* key_block, float* value_block);

struct AttentionShape {
  std::int64_t heads, kv_heads, head_dim;
  float scale;
  std::int64_t window = 0;  // 0 = all earlier positions
};

// One query row: position `position` of the sequence behind `kv`; sees keys at
// positions <= position (and > position - window).
struct QueryRow {
  const float* q;         // [heads, head_dim], rotated
  float* out;             // [heads, head_dim]
  float* logsumexp;       // [heads], or null; the backward pass needs it
  std::int32_t sequence;  // index into `sequences`
  std::int32_t position;
};

void attention(const AttentionShape& shape, std::span<const KvBlocks> sequences,
               std::span<const QueryRow> rows, ThreadPool& pool);

}  // namespace weft::nn
