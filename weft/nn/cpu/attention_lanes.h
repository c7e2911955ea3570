// Causal attention of up to kAttentionItems queries of one sequence and kv head,
// on lanes. Blocks of 32 keys are the outer loop, so that a block is read from
// memory once and stays in the first-level cache while all items use it.
#pragma once

#include <type_traits>

#include "weft/nn/cpu/row_kernels.h"
#include "weft/nn/cpu/transcendental_lanes.h"

namespace weft::nn {
namespace {

constexpr std::int64_t kKeys = 32;  // kAttentionBlock
constexpr std::int64_t kFewItems = 8;

// scores[r][32] = q[r] . keys for R queries; keys are [head_dim, 32].
template <int R>
inline void block_scores(const float* const* q, const float* keys, std::int64_t head_dim,
                         float* const* scores) {
  Lanes low[R], high[R];
  for (int r = 0; r < R; ++r) low[r] = high[r] = splat(0.0F);
  for (std::int64_t d = 0; d < head_dim; ++d) {
    const Lanes a = load(keys + d * kKeys), b = load(keys + d * kKeys + 16);
    for (int r = 0; r < R; ++r) {
      const Lanes x = splat(q[r][d]);
      low[r] = fma(x, a, low[r]);
      high[r] = fma(x, b, high[r]);
    }
  }
  for (int r = 0; r < R; ++r) {
    store(scores[r], low[r]);
    store(scores[r] + 16, high[r]);
  }
}

// out[r] := out[r] * keep[r] + (sum over positions [first, last] of p * v) * add[r]
// over channels [channel, channel + 16 * V).
template <int R, int V>
inline void block_values(const float* const* p, const float* values, std::int64_t head_dim,
                         std::int64_t channel, std::int64_t first, std::int64_t last,
                         const float* keep, const float* gain, float* const* out) {
  Lanes sums[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sums[r][v] = splat(0.0F);
  }
  for (std::int64_t position = first; position <= last; ++position) {
    const float* row = values + position * head_dim + channel;
    Lanes x[V];
    for (int v = 0; v < V; ++v) x[v] = load(row + 16 * v);
    for (int r = 0; r < R; ++r) {
      const Lanes weight = splat(p[r][position]);
      for (int v = 0; v < V; ++v) sums[r][v] = fma(weight, x[v], sums[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      float* o = out[r] + channel + 16 * v;
      store(o, fma(load(o), splat(keep[r]), mul(sums[r][v], splat(gain[r]))));
    }
  }
}

template <int R>
inline void all_values(const float* const* p, const float* values, std::int64_t head_dim,
                       std::int64_t first, std::int64_t last, const float* keep, const float* gain,
                       float* const* out) {
  std::int64_t channel = 0;
  for (; channel + 16 * kValueVectors <= head_dim; channel += 16 * kValueVectors) {
    block_values<R, kValueVectors>(p, values, head_dim, channel, first, last, keep, gain, out);
  }
  for (; channel + 16 <= head_dim; channel += 16) {
    block_values<R, 1>(p, values, head_dim, channel, first, last, keep, gain, out);
  }
  for (; channel < head_dim; ++channel) {
    for (int r = 0; r < R; ++r) {
      float s = 0.0F;
      for (std::int64_t position = first; position <= last; ++position) {
        s = __builtin_fmaf(p[r][position], values[position * head_dim + channel], s);
      }
      float& o = out[r][channel];
      o = __builtin_fmaf(o, keep[r], s * gain[r]);
    }
  }
}

// Calls body with `rows` in [1, Most] as a constant: a group's sums are as many
// independent chains, so that few items too (a decoding row's query heads) hide the
// latency of a multiply-add.
template <int Most, class Body>
inline void with_rows(std::int64_t rows, const Body& body) {
  if constexpr (Most > 1) {
    if (rows < Most) return with_rows<Most - 1>(rows, body);
  }
  body(std::integral_constant<int, Most>{});
}

// Asks for a block of the next keys or values while this one is worked on.
inline void prefetch_block(const float* block, std::int64_t floats) {
  for (std::int64_t i = 0; i < floats; i += 16) __builtin_prefetch(block + i);
}

void attention_lanes(const AttentionChunk& chunk) {
  const std::int64_t head_dim = chunk.head_dim, count = chunk.count;
  const AttentionItem* items = chunk.items;
  // Scratch: state of each item, then scores.
  float* maxima = chunk.maxima;
  float* sums = chunk.sums;
  float* keep = chunk.scratch;
  float* gain = keep + kAttentionItems;
  float* block_max = gain + kAttentionItems;
  float* block_sum = block_max + kAttentionItems;
  float* scores = block_sum + kAttentionItems;
  float* state = scores + kAttentionItems * kKeys;
  const std::int64_t stride = (head_dim + 15) & ~std::int64_t{15};
  const float lowest = -__builtin_inff();

  std::int64_t first_block = -1, last_block = -1;
  for (std::int64_t i = 0; i < count; ++i) {
    maxima[i] = lowest;
    sums[i] = 0.0F;
    for (std::int64_t d = 0; d < head_dim; ++d) state[i * stride + d] = 0.0F;
    const std::int64_t begin = chunk.window > 0 && items[i].position >= chunk.window
                                   ? items[i].position - chunk.window + 1
                                   : 0;
    const std::int64_t low = begin / kKeys, high = items[i].position / kKeys;
    if (first_block < 0 || low < first_block) first_block = low;
    if (high > last_block) last_block = high;
  }
  for (std::int64_t i = count; i < ((count + 15) & ~std::int64_t{15}); ++i) {
    block_max[i] = block_sum[i] = 0.0F;
  }

  std::int64_t active[kAttentionItems];
  std::int64_t first[kAttentionItems], last[kAttentionItems];
  for (std::int64_t block = first_block; block <= last_block; ++block) {
    const float* keys = chunk.keys[block] + chunk.kv_offset;
    const float* values = chunk.values[block] + chunk.kv_offset;
    const std::int64_t base = block * kKeys;
    std::int64_t n = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t begin = chunk.window > 0 ? items[i].position - chunk.window + 1 : 0;
      std::int64_t low = begin - base, high = items[i].position - base;
      if (low < 0) low = 0;
      if (high > kKeys - 1) high = kKeys - 1;
      if (low > high) continue;
      active[n] = i;
      first[n] = low;
      last[n] = high;
      ++n;
    }
    // Scores of all active items; lanes outside an item's range are dropped below.
    for (std::int64_t j = 0; j < n;) {
      const float* q[kQueryRows];
      float* s[kQueryRows];
      const std::int64_t group = n - j < kQueryRows ? n - j : kQueryRows;
      for (std::int64_t r = 0; r < group; ++r) {
        q[r] = items[active[j + r]].q;
        s[r] = scores + (j + r) * kKeys;
      }
      with_rows<kQueryRows>(
          group, [&](auto rows) { block_scores<decltype(rows)::value>(q, keys, head_dim, s); });
      j += group;
    }
    // A chunk of few items waits for memory: the hardware does not look past a block.
    if (n <= kFewItems && block < last_block) {
      prefetch_block(chunk.keys[block + 1] + chunk.kv_offset, head_dim * kKeys);
      prefetch_block(chunk.values[block + 1] + chunk.kv_offset, head_dim * kKeys);
    }
    // Softmax numerators against the block's own maximum.
    for (std::int64_t j = 0; j < n; ++j) {
      float* s = scores + j * kKeys;
      const int low = static_cast<int>(first[j]), high = static_cast<int>(last[j]);
      const Lanes scale = splat(chunk.scale);
      Lanes a = mul(load(s), scale), b = mul(load(s + 16), scale);
      const bool whole = low == 0 && high == kKeys - 1;
      if (!whole) {
        a = keep_range(a, low, high, lowest);
        b = keep_range(b, low - 16, high - 16, lowest);
      }
      const float peak = largest(max(a, b));
      a = exp(sub(a, splat(peak)));
      b = exp(sub(b, splat(peak)));
      if (!whole) {
        a = keep_range(a, low, high, 0.0F);
        b = keep_range(b, low - 16, high - 16, 0.0F);
      }
      store(s, a);
      store(s + 16, b);
      block_max[j] = peak;
      block_sum[j] = sum(add(a, b));
    }
    // Factors of the merge, 16 items at a time: see merge() in attention.cpp.
    float before[kAttentionItems];
    for (std::int64_t j = 0; j < n; ++j) before[j] = maxima[active[j]];
    for (std::int64_t j = n; j < ((n + 15) & ~std::int64_t{15}); ++j) {
      before[j] = block_max[j] = 0.0F;
    }
    float after[kAttentionItems];
    for (std::int64_t j = 0; j < n; j += 16) {
      const Lanes old_max = load(before + j), new_max = load(block_max + j);
      const Lanes top = max(old_max, new_max);
      store(after + j, top);
      store(keep + j, exp(sub(old_max, top)));
      store(gain + j, exp(sub(new_max, top)));
    }
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t i = active[j];
      maxima[i] = after[j];
      sums[i] = __builtin_fmaf(sums[i], keep[j], block_sum[j] * gain[j]);
    }
    // Values.
    for (std::int64_t j = 0; j < n;) {
      const float* p[kValueRows];
      float* out[kValueRows];
      std::int64_t group = 1;
      while (group < kValueRows && j + group < n && first[j + group] == first[j] &&
             last[j + group] == last[j]) {
        ++group;
      }
      for (std::int64_t r = 0; r < group; ++r) {
        p[r] = scores + (j + r) * kKeys;
        out[r] = state + active[j + r] * stride;
      }
      with_rows<kValueRows>(group, [&](auto rows) {
        all_values<decltype(rows)::value>(p, values, head_dim, first[j], last[j], keep + j,
                                          gain + j, out);
      });
      j += group;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const float inverse = 1.0F / sums[i];
    const float* s = state + i * stride;
    float* out = items[i].out;
    for (std::int64_t d = 0; d < head_dim; ++d) out[d] = s[d] * inverse;
  }
}

}  // namespace
}  // namespace weft::nn
