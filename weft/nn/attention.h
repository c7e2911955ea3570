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

// How a block holds its keys and values; both take kv_heads * head_dim * kAttentionBlock
// floats of memory.
enum class KvLayout : std::uint8_t {
  // keys [kv_heads, head_dim, kAttentionBlock] (transposed, so that a block of scores needs
  // no horizontal sums), values [kv_heads, kAttentionBlock, head_dim]. Scores sum over
  // head_dim in ascending order by fused multiply-add; so do the values over the positions.
  kF32,
  // Each number as two bf16, x = high + low to 16 bits, where AMX multiplies them: keys
  // [kv_heads][high, low][kAttentionBlock, head_dim], values [kv_heads][high, low][head_dim,
  // kAttentionBlock]. A position whose values are not finite spoils its block for its sequence.
  kSplit,
};
// kSplit for bf16 arithmetic at level amx if head_dim is a multiple of 32 (docs/numerics.md).
KvLayout kv_layout(bool bf16, std::int64_t head_dim);

// Where the keys and values of one sequence and one layer lie: block b holds
// positions [b * kAttentionBlock, ...) (pages of a pool or one array).
struct KvBlocks {
  std::span<const float* const> keys;
  std::span<const float* const> values;
};

struct AttentionShape {
  std::int64_t heads, kv_heads, head_dim;
  float scale;
  std::int64_t window = 0;  // 0 = all earlier positions
  KvLayout layout = KvLayout::kF32;
};

// Writes one position's k and v ([kv_heads, head_dim] each) into its block.
void store_kv(const AttentionShape& shape, const float* k, const float* v,
              std::int64_t position_in_block, float* key_block, float* value_block);

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
