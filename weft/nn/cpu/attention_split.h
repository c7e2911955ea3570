// Attention over keys and values split into two bf16 parts (KvLayout::kSplit): the
// kernels behind attention() and store_kv() on machines with AMX. Plain data only.
#pragma once

#include <cstdint>

#include "weft/nn/cpu/row_kernels.h"

namespace weft::nn {

// Queries that one call takes: what stays in the second-level cache beside the keys.
constexpr std::int64_t kSplitAttentionItems = 96;

// head_dim must be a multiple of 32 and scale positive. `kv_offset` counts floats: a head
// of a block takes 32 * head_dim of them, as keys [high, low][32][head_dim] and as values
// [high, low][head_dim][32] of bf16. chunk.scratch is not used.
void attention_split_amx(const AttentionChunk& chunk);

// Writes one position of one head.
void store_kv_split_amx(const float* k, const float* v, std::int64_t head_dim,
                        std::int64_t position_in_block, float* key_block, float* value_block);

}  // namespace weft::nn
