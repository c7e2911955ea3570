// Attention on AMX tiles in numbers split into two bf16 parts: x = high + low with high =
// bf16(x), low = bf16(x - high), so that three products (low high', high high', high low')
// carry 16 bits of both factors. Everything is computed transposed, keys or channels by
// queries: S^T = K Q^T, O^T = V^T P^T. Then the softmax runs down the lanes of 16 queries,
// and no tile is transposed between the two products.
//
// The limit, for 32 queries and a block of 32 keys of D channels: 48 (D / 64) products of
// 16 x 16 x 32 at 16 cycles each, and about 40 vector instructions for each 32 scores.
#include <algorithm>
#include <type_traits>

#include "weft/nn/cpu/aligned_buffer.h"
#include "weft/nn/cpu/lanes_avx512.h"
// The lanes above come first: these are written on them.
#include "weft/nn/cpu/attention_split.h"
#include "weft/nn/cpu/bf16_convert_avx512.h"
#include "weft/nn/cpu/tiles_amx.h"
#include "weft/nn/cpu/transcendental_lanes.h"

namespace weft::nn {
namespace {

constexpr std::int64_t kKeys = 32;     // kAttentionBlock
constexpr std::int64_t kQueries = 16;  // of one tile
constexpr std::int64_t kTile = 512;    // bf16 values of a tile
constexpr std::int64_t kTiles = kSplitAttentionItems / kQueries;
constexpr std::int64_t kTogether = 2;  // tiles of queries that share a load of keys

// A pair of 16 floats as 32 bf16 [first, second] and what is left of them.
struct Parts {
  __m512i high, low;
};
inline Parts split(__m512 first, __m512 second) {
  Parts parts;
  parts.high = (__m512i)_mm512_cvtne2ps_pbh(second, first);
  const auto rest = [&](__m512 x, __m256i words) {
    return _mm512_sub_ps(x,
                         _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16)));
  };
  parts.low = (__m512i)_mm512_cvtne2ps_pbh(rest(second, _mm512_extracti64x4_epi64(parts.high, 1)),
                                           rest(first, _mm512_castsi512_si256(parts.high)));
  return parts;
}

// The arrays of one chunk. Operands lie as tiles of 16 pairs (of channels or keys) by 16
// queries, the high part first.
struct Buffers {
  std::uint16_t* q;  // [tile][D / 32][2][kTile]
  std::uint16_t* p;  // [tile][2][kTile]
  std::uint16_t* v;  // a copy of the values of a block that is not full
  float* scores;     // [tile][32 keys][16 queries]
  float* sums;       // [tile][D][16 queries], of the block
  float* out;        // [tile][D][16 queries], of the blocks so far
};

// Of each query: softmax's state, the factors of the merge, its position (-1: none).
struct alignas(64) State {
  float max[kSplitAttentionItems], sum[kSplitAttentionItems];
  float keep[kSplitAttentionItems], gain[kSplitAttentionItems];
  std::int32_t position[kSplitAttentionItems];
};

Buffers buffers(std::int64_t head_dim) {
  thread_local Scratch scratch;
  const std::int64_t q = kTiles * head_dim / 32 * 2 * kTile, p = kTiles * 2 * kTile;
  const std::int64_t v = 2 * head_dim * kKeys, scores = kTiles * kKeys * kQueries;
  const std::int64_t out = kTiles * head_dim * kQueries;
  Buffers b;
  b.q = scratch.get<std::uint16_t>(static_cast<std::size_t>(q + p + v + 2 * (scores + 2 * out)));
  b.p = b.q + q;
  b.v = b.p + p;
  b.scores = reinterpret_cast<float*>(b.v + v);
  b.sums = b.scores + scores;
  b.out = b.sums + out;
  return b;
}

void load_queries(const AttentionChunk& c, std::int64_t tiles, const Buffers& b) {
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    for (std::int64_t d = 0; d < c.head_dim; d += 32) {
      __m512i high[16], low[16];
      for (std::int64_t i = 0; i < kQueries; ++i) {
        const std::int64_t item = tile * kQueries + i;
        if (item < c.count) {
          const float* q = c.items[item].q + d;
          const Parts parts = split(_mm512_loadu_ps(q), _mm512_loadu_ps(q + 16));
          high[i] = parts.high;
          low[i] = parts.low;
        } else {
          high[i] = low[i] = _mm512_setzero_si512();
        }
      }
      transpose_dwords(high);
      transpose_dwords(low);
      std::uint16_t* to = b.q + (tile * (c.head_dim / 32) + d / 32) * 2 * kTile;
      for (int i = 0; i < 16; ++i) {
        _mm512_store_si512(to + i * 32, high[i]);
        _mm512_store_si512(to + kTile + i * 32, low[i]);
      }
    }
  }
}

// Scores of 32 keys and Q tiles of 16 queries.
template <int Q>
void tile_scores(const std::uint16_t* keys, const std::uint16_t* q, std::int64_t head_dim,
                 float* scores) {
  const std::int64_t next = head_dim / 32 * 2 * kTile;  // from one tile of queries to the next
  const std::uint16_t* low = keys + kKeys * head_dim;
  const std::int64_t stride = head_dim * 2, half = 16 * head_dim;
  const auto products = [] {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (Q > 1) {
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  };
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::int64_t d = 0; d < head_dim; d += 32, q += 2 * kTile) {
    WEFT_TILE_LOAD(6, q, 64);
    if constexpr (Q > 1) WEFT_TILE_LOAD(7, q + next, 64);
    WEFT_TILE_LOAD(4, low + d, stride);
    WEFT_TILE_LOAD(5, low + half + d, stride);
    products();
    WEFT_TILE_LOAD(4, keys + d, stride);
    WEFT_TILE_LOAD(5, keys + half + d, stride);
    products();
    WEFT_TILE_LOAD(6, q + kTile, 64);
    if constexpr (Q > 1) WEFT_TILE_LOAD(7, q + next + kTile, 64);
    products();
  }
  WEFT_TILE_STORE(0, scores, 64);
  WEFT_TILE_STORE(2, scores + 16 * kQueries, 64);
  if constexpr (Q > 1) {
    WEFT_TILE_STORE(1, scores + kKeys * kQueries, 64);
    WEFT_TILE_STORE(3, scores + (kKeys + 16) * kQueries, 64);
  }
}

// Sums of values of 32 keys for Q tiles of 16 queries.
template <int Q>
void tile_values(const std::uint16_t* values, const std::uint16_t* p, std::int64_t head_dim,
                 float* sums) {
  const std::uint16_t* low = values + kKeys * head_dim;
  const std::int64_t next = head_dim * kQueries;
  const auto products = [] {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (Q > 1) {
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  };
  for (std::int64_t d = 0; d < head_dim; d += 32) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    WEFT_TILE_LOAD(6, p, 64);
    if constexpr (Q > 1) WEFT_TILE_LOAD(7, p + 2 * kTile, 64);
    WEFT_TILE_LOAD(4, low + d * kKeys, 64);
    WEFT_TILE_LOAD(5, low + (d + 16) * kKeys, 64);
    products();
    WEFT_TILE_LOAD(4, values + d * kKeys, 64);
    WEFT_TILE_LOAD(5, values + (d + 16) * kKeys, 64);
    products();
    WEFT_TILE_LOAD(6, p + kTile, 64);
    if constexpr (Q > 1) WEFT_TILE_LOAD(7, p + 3 * kTile, 64);
    products();
    float* to = sums + d * kQueries;
    WEFT_TILE_STORE(0, to, 64);
    WEFT_TILE_STORE(2, to + 16 * kQueries, 64);
    if constexpr (Q > 1) {
      WEFT_TILE_STORE(1, to + next, 64);
      WEFT_TILE_STORE(3, to + next + 16 * kQueries, 64);
    }
  }
}

// What the queries of a tile see of a block whose first key is at position `base`.
struct Sight {
  __m512i position;
  std::int64_t base, window;
  __mmask16 any;  // queries that see a key
  bool whole;     // every query sees every key

  Sight(const std::int32_t* positions, std::int64_t base, std::int64_t window)
      : position(_mm512_load_si512(positions)), base(base), window(window) {
    any = static_cast<__mmask16>(from(base) & ~too_late(base + kKeys - 1));
    whole = (from(base + kKeys - 1) & ~too_late(base)) == 0xffff;
  }
  __mmask16 key(std::int64_t i) const {
    return static_cast<__mmask16>(from(base + i) & ~too_late(base + i));
  }

 private:
  // Queries at or after a key; queries whose window has left it.
  __mmask16 from(std::int64_t key) const {
    return _mm512_cmpge_epi32_mask(position, _mm512_set1_epi32(static_cast<int>(key)));
  }
  __mmask16 too_late(std::int64_t key) const {
    if (window == 0) return 0;
    return _mm512_cmpge_epi32_mask(position, _mm512_set1_epi32(static_cast<int>(key + window)));
  }
};

// Scores to weights in two parts, and the state and factors of the merge (merge() in
// attention.cpp) for 16 queries. A query that sees nothing keeps its state.
template <bool kWhole>
void soften(const Sight& sight, float scale, const float* scores, std::uint16_t* p, State& state,
            std::int64_t at) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  __m512 top[4] = {lowest, lowest, lowest, lowest};
  for (int i = 0; i < kKeys; ++i) {
    const __m512 s = _mm512_load_ps(scores + i * kQueries);
    top[i % 4] = kWhole ? _mm512_max_ps(top[i % 4], s)
                        : _mm512_mask_max_ps(top[i % 4], sight.key(i), top[i % 4], s);
  }
  const Lanes block_max = mul(
      {_mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3]))}, splat(scale));
  const Lanes less = sub(splat(0.0F), block_max), factor = splat(scale);
  Lanes sums[4] = {splat(0.0F), splat(0.0F), splat(0.0F), splat(0.0F)};
  for (int pair = 0; pair < kKeys / 2; ++pair) {
    Lanes x[2];
    for (int odd = 0; odd < 2; ++odd) {
      const int i = 2 * pair + odd;
      x[odd] = exp(fma(load(scores + i * kQueries), factor, less));
      if constexpr (!kWhole) x[odd].v = _mm512_maskz_mov_ps(sight.key(i), x[odd].v);
      sums[i % 4] = add(sums[i % 4], x[odd]);
    }
    const Parts parts = split(x[0].v, x[1].v);
    _mm512_store_si512(p + pair * 32, interleave_halves(parts.high));
    _mm512_store_si512(p + kTile + pair * 32, interleave_halves(parts.low));
  }
  const Lanes block_sum = add(add(sums[0], sums[1]), add(sums[2], sums[3]));
  const Lanes old_max = load(state.max + at), old_sum = load(state.sum + at);
  const Lanes after = max(old_max, block_max);
  Lanes keep = exp(sub(old_max, after)), gain = exp(sub(block_max, after));
  const Lanes sum = fma(old_sum, keep, mul(block_sum, gain));
  const __mmask16 any = kWhole ? __mmask16{0xffff} : sight.any;
  store(state.max + at, {_mm512_mask_mov_ps(old_max.v, any, after.v)});
  store(state.sum + at, {_mm512_mask_mov_ps(old_sum.v, any, sum.v)});
  store(state.keep + at, {_mm512_mask_mov_ps(splat(1.0F).v, any, keep.v)});
  store(state.gain + at, {_mm512_maskz_mov_ps(any, gain.v)});
}

void merge_sums(const float* sums, std::int64_t head_dim, const State& state, std::int64_t at,
                __mmask16 any, float* out) {
  const Lanes keep = load(state.keep + at), gain = load(state.gain + at);
  for (std::int64_t d = 0; d < head_dim; ++d) {
    const Lanes old = load(out + d * kQueries);
    const Lanes merged = fma(old, keep, mul(load(sums + d * kQueries), gain));
    store(out + d * kQueries, {_mm512_mask_mov_ps(old.v, any, merged.v)});
  }
}

// A copy of a head's values without the keys from `keys` on: nothing was written there.
const std::uint16_t* clear_rest(const std::uint16_t* values, std::int64_t head_dim,
                                std::int64_t keys, std::uint16_t* to) {
  const __mmask32 mask = (__mmask32{1} << keys) - 1;
  for (std::int64_t d = 0; d < 2 * head_dim; ++d) {
    _mm512_store_si512(to + d * kKeys, _mm512_maskz_loadu_epi16(mask, values + d * kKeys));
  }
  return to;
}

// Asks for what the next step reads.
inline void prefetch(const float* from, std::int64_t floats) {
  for (std::int64_t i = 0; i < floats; i += 16) __builtin_prefetch(from + i);
}

void store_results(const AttentionChunk& c, const State& state, const Buffers& b) {
  for (std::int64_t at = 0; at < c.count; at += kQueries) {
    const Lanes inverse = div(splat(1.0F), load(state.sum + at));
    const std::int64_t items = std::min(kQueries, c.count - at);
    for (std::int64_t d = 0; d < c.head_dim; d += 16) {
      __m512i v[16];
      for (std::int64_t i = 0; i < 16; ++i) {
        const float* out = b.out + at * c.head_dim + (d + i) * kQueries;
        v[i] = _mm512_castps_si512(mul(load(out), inverse).v);
      }
      transpose_dwords(v);
      // The counted loop keeps v in registers.
      for (std::int64_t i = 0; i < 16; ++i) {
        if (i < items) _mm512_storeu_si512(c.items[at + i].out + d, v[i]);
      }
    }
  }
  std::copy_n(state.max, c.count, c.maxima);
  std::copy_n(state.sum, c.count, c.sums);
}

}  // namespace

void attention_split_amx(const AttentionChunk& c) {
  const Buffers b = buffers(c.head_dim);
  State state;
  const std::int64_t tiles = (c.count + kQueries - 1) / kQueries;
  std::int64_t first = c.items[0].position, last = -1;
  for (std::int64_t i = 0; i < tiles * kQueries; ++i) {
    state.position[i] = i < c.count ? static_cast<std::int32_t>(c.items[i].position) : -1;
    state.max[i] = -__builtin_inff();
    state.sum[i] = 0.0F;
    if (i >= c.count) continue;
    first = std::min(first, c.items[i].position);
    last = std::max(last, c.items[i].position);
  }
  first = c.window > 0 ? std::max<std::int64_t>(first - c.window + 1, 0) : 0;
  std::fill_n(b.out, tiles * c.head_dim * kQueries, 0.0F);

  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = 16;
    config.column_bytes[tile] = 64;
  }
  load_config(config);
  load_queries(c, tiles, b);
  for (std::int64_t block = first / kKeys; block <= last / kKeys; ++block) {
    const std::int64_t base = block * kKeys;
    const auto* keys = reinterpret_cast<const std::uint16_t*>(c.keys[block] + c.kv_offset);
    const auto* values = reinterpret_cast<const std::uint16_t*>(c.values[block] + c.kv_offset);
    // Step by step, for all queries: a tile load waits for stores to its lines that have not
    // left the store buffer.
    const auto each = [&](const auto& two, const auto& one) {
      for (std::int64_t tile = 0; tile < tiles; tile += kTogether) {
        tiles - tile > 1 ? two(tile) : one(tile);
      }
    };
    const auto scores = [&](auto count) {
      return [&](std::int64_t tile) {
        tile_scores<decltype(count)::value>(keys, b.q + tile * c.head_dim / 32 * 2 * kTile,
                                            c.head_dim, b.scores + tile * kKeys * kQueries);
      };
    };
    const auto sums = [&](auto count) {
      return [&](std::int64_t tile) {
        tile_values<decltype(count)::value>(values, b.p + tile * 2 * kTile, c.head_dim,
                                            b.sums + tile * c.head_dim * kQueries);
      };
    };
    prefetch(c.values[block] + c.kv_offset, c.head_dim * kKeys);
    using One = std::integral_constant<int, 1>;
    using Two = std::integral_constant<int, 2>;
    each(scores(Two{}), scores(One{}));
    __mmask16 any[kTiles];
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const Sight sight(state.position + tile * kQueries, base, c.window);
      any[tile] = sight.any;
      const auto kernel = sight.whole ? soften<true> : soften<false>;
      kernel(sight, c.scale, b.scores + tile * kKeys * kQueries, b.p + tile * 2 * kTile, state,
             tile * kQueries);
    }
    if (last - base < kKeys - 1) values = clear_rest(values, c.head_dim, last - base + 1, b.v);
    if (block < last / kKeys) prefetch(c.keys[block + 1] + c.kv_offset, c.head_dim * kKeys);
    each(sums(Two{}), sums(One{}));
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t at = tile * kQueries;
      merge_sums(b.sums + at * c.head_dim, c.head_dim, state, at, any[tile],
                 b.out + at * c.head_dim);
    }
  }
  _tile_release();
  store_results(c, state, b);
}

void store_kv_split_amx(const float* k, const float* v, std::int64_t head_dim,
                        std::int64_t position_in_block, float* key_block, float* value_block) {
  auto* keys = reinterpret_cast<std::uint16_t*>(key_block) + position_in_block * head_dim;
  auto* values = reinterpret_cast<std::uint16_t*>(value_block) + position_in_block;
  for (std::int64_t d = 0; d < head_dim; d += 32) {
    const Parts key = split(_mm512_loadu_ps(k + d), _mm512_loadu_ps(k + d + 16));
    _mm512_storeu_si512(keys + d, key.high);
    _mm512_storeu_si512(keys + kKeys * head_dim + d, key.low);
    const Parts value = split(_mm512_loadu_ps(v + d), _mm512_loadu_ps(v + d + 16));
    alignas(64) std::uint16_t high[32], low[32];
    _mm512_store_si512(high, value.high);
    _mm512_store_si512(low, value.low);
    for (std::int64_t i = 0; i < 32; ++i) {
      values[(d + i) * kKeys] = high[i];
      values[(head_dim + d + i) * kKeys] = low[i];
    }
  }
}

}  // namespace weft::nn
