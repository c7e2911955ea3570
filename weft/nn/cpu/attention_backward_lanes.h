// Backward of attention for one key head of one unit, in tiles of 32 queries by 32
// keys (Dao et al. 2022, FlashAttention, algorithm 4, keys outermost):
//   P = exp(scale Q K^T - lse), D = rowsum(dO * O), dS = P * (dO V^T - D) * scale,
//   dV += P^T dO, dK += dS^T Q, dQ += dS K.
// Products are f32 multiply-adds over the summed index in ascending order.
#pragma once

#include <algorithm>
#include <vector>

#include "weft/nn/cpu/ops_backward_kernels.h"

namespace weft::nn {
namespace {

inline constexpr std::int64_t kTile = 32;

// c[kRows, 16 kVectors] += a b, with a(i, k) at a[i * row_step + k * k_step].
template <int kRows, int kVectors>
inline void product_block(std::int64_t depth, const float* a, std::int64_t row_step,
                          std::int64_t k_step, const float* b, std::int64_t ldb, float* c,
                          std::int64_t ldc) {
  Lanes sums[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) sums[i][j] = load(c + i * ldc + 16 * j);
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    Lanes right[kVectors];
    for (int j = 0; j < kVectors; ++j) right[j] = load(b + k * ldb + 16 * j);
    for (int i = 0; i < kRows; ++i) {
      const Lanes left = splat(a[i * row_step + k * k_step]);
      for (int j = 0; j < kVectors; ++j) sums[i][j] = fma(left, right[j], sums[i][j]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) store(c + i * ldc + 16 * j, sums[i][j]);
  }
}

template <int kVectors>
inline void product_rows(std::int64_t rows, std::int64_t depth, const float* a,
                         std::int64_t row_step, std::int64_t k_step, const float* b,
                         std::int64_t ldb, float* c, std::int64_t ldc) {
  std::int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    product_block<4, kVectors>(depth, a + i * row_step, row_step, k_step, b, ldb, c + i * ldc, ldc);
  }
  for (; i < rows; ++i) {
    product_block<1, kVectors>(depth, a + i * row_step, row_step, k_step, b, ldb, c + i * ldc, ldc);
  }
}

// c[rows, columns] += a[rows, depth] b[depth, columns]; columns in sixteens.
inline void product(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a,
                    std::int64_t row_step, std::int64_t k_step, const float* b, std::int64_t ldb,
                    float* c, std::int64_t ldc) {
  std::int64_t j = 0;
  for (; j + 64 <= columns; j += 64) {
    product_rows<4>(rows, depth, a, row_step, k_step, b + j, ldb, c + j, ldc);
  }
  for (; j + 32 <= columns; j += 32) {
    product_rows<2>(rows, depth, a, row_step, k_step, b + j, ldb, c + j, ldc);
  }
  for (; j < columns; j += 16) {
    product_rows<1>(rows, depth, a, row_step, k_step, b + j, ldb, c + j, ldc);
  }
}

// The slices of one unit that one key head needs, contiguous, head_dim padded with
// zeros to sixteens. Row r of the unit is row r of each.
struct AttentionScratch {
  std::int64_t width = 0;
  std::vector<float> q, dout, dq, k, v, dk, dv, delta, lse;

  // q, dout, dq are [group][rows][width]; delta, lse [group][rows].
  void load(const AttentionGradient& g, std::int64_t first, std::int64_t rows,
            std::int64_t kv_head) {
    const std::int64_t group = g.heads / g.kv_heads, ld = (g.heads + 2 * g.kv_heads) * g.head_dim;
    width = (g.head_dim + 15) / 16 * 16;
    for (auto* array : {&q, &dout, &dq})
      array->assign(static_cast<std::size_t>(group * rows * width), 0.0F);
    for (auto* array : {&k, &v, &dk, &dv})
      array->assign(static_cast<std::size_t>(rows * width), 0.0F);
    for (auto* array : {&delta, &lse}) array->resize(static_cast<std::size_t>(group * rows));
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* row = g.qkv + (first + r) * ld;
      std::copy_n(row + (g.heads + kv_head) * g.head_dim, g.head_dim, &k[r * width]);
      std::copy_n(row + (g.heads + g.kv_heads + kv_head) * g.head_dim, g.head_dim, &v[r * width]);
      for (std::int64_t h = 0; h < group; ++h) {
        const std::int64_t head = kv_head * group + h, at = (h * rows + r) * width;
        std::copy_n(row + head * g.head_dim, g.head_dim, &q[at]);
        const std::int64_t out = ((first + r) * g.heads + head) * g.head_dim;
        std::copy_n(g.dout + out, g.head_dim, &dout[at]);
        Lanes total = splat(0.0F);
        std::int64_t d = 0;
        for (; d + 16 <= g.head_dim; d += 16) {
          total = fma(nn::load(&dout[at + d]), nn::load(g.out + out + d), total);
        }
        if (d < g.head_dim) {
          total =
              fma(nn::load(&dout[at + d]), load_part(g.out + out + d, g.head_dim - d, 0.0F), total);
        }
        delta[h * rows + r] = sum(total);
        lse[h * rows + r] = g.logsumexp[(first + r) * g.heads + head];
      }
    }
  }

  void store(const AttentionGradient& g, std::int64_t first, std::int64_t rows,
             std::int64_t kv_head) const {
    const std::int64_t group = g.heads / g.kv_heads, ld = (g.heads + 2 * g.kv_heads) * g.head_dim;
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = g.dqkv + (first + r) * ld;
      std::copy_n(&dk[r * width], g.head_dim, row + (g.heads + kv_head) * g.head_dim);
      std::copy_n(&dv[r * width], g.head_dim, row + (g.heads + g.kv_heads + kv_head) * g.head_dim);
      for (std::int64_t h = 0; h < group; ++h) {
        std::copy_n(&dq[(h * rows + r) * width], g.head_dim,
                    row + (kv_head * group + h) * g.head_dim);
      }
    }
  }
};

// 32 keys from row `key` of the unit, transposed for the products over head_dim.
struct KeyTile {
  std::int64_t key = 0, keys = 0, position = 0;   // first row, count, first position
  std::vector<float> k_transposed, v_transposed;  // [width][kTile]

  void load(const AttentionScratch& s) {
    k_transposed.assign(static_cast<std::size_t>(s.width * kTile), 0.0F);
    v_transposed.assign(static_cast<std::size_t>(s.width * kTile), 0.0F);
    for (std::int64_t j = 0; j < keys; ++j) {
      for (std::int64_t d = 0; d < s.width; ++d) {
        k_transposed[d * kTile + j] = s.k[(key + j) * s.width + d];
        v_transposed[d * kTile + j] = s.v[(key + j) * s.width + d];
      }
    }
  }
};

// Queries [row, row + queries) of the unit, the first at `position`, for query head h.
inline void attention_tile(const AttentionGradient& g, AttentionScratch& s, const KeyTile& tile,
                           std::int64_t rows, std::int64_t h, std::int64_t row,
                           std::int64_t queries, std::int64_t position) {
  alignas(64) float p[kTile * kTile] = {}, ds[kTile * kTile] = {};
  const std::int64_t at = (h * rows + row) * s.width;
  product(queries, kTile, s.width, &s.q[at], s.width, 1, tile.k_transposed.data(), kTile, p, kTile);
  product(queries, kTile, s.width, &s.dout[at], s.width, 1, tile.v_transposed.data(), kTile, ds,
          kTile);
  const Lanes scale = splat(g.scale);
  for (std::int64_t i = 0; i < queries; ++i) {
    const Lanes lse = splat(s.lse[h * rows + row + i]), delta = splat(s.delta[h * rows + row + i]);
    float *p_row = p + i * kTile, *ds_row = ds + i * kTile;
    for (int j = 0; j < kTile; j += 16) {
      const Lanes weight = exp(sub(mul(load(p_row + j), scale), lse));
      store(p_row + j, weight);
      store(ds_row + j, mul(mul(weight, sub(load(ds_row + j), delta)), scale));
    }
    // Keys of the tile that this query sees: [first, last).
    const std::int64_t last = std::min(tile.keys, position + i - tile.position + 1);
    const std::int64_t first =
        g.window == 0
            ? 0
            : std::clamp<std::int64_t>(position + i - g.window + 1 - tile.position, 0, kTile);
    for (std::int64_t j = 0; j < first; ++j) p_row[j] = ds_row[j] = 0.0F;
    for (std::int64_t j = std::max<std::int64_t>(last, 0); j < kTile; ++j)
      p_row[j] = ds_row[j] = 0.0F;
  }
  product(tile.keys, s.width, queries, p, 1, kTile, &s.dout[at], s.width, &s.dv[tile.key * s.width],
          s.width);
  product(tile.keys, s.width, queries, ds, 1, kTile, &s.q[at], s.width, &s.dk[tile.key * s.width],
          s.width);
  product(queries, s.width, tile.keys, ds, kTile, 1, &s.k[tile.key * s.width], s.width, &s.dq[at],
          s.width);
}

inline void attention_backward_lanes(const AttentionGradient& g, std::span<const Segment> unit,
                                     std::int64_t unit_index, std::int64_t kv_head) {
  thread_local AttentionScratch scratch;
  thread_local KeyTile tile;
  const std::int64_t base = unit.front().begin, rows = unit.back().end - base;
  const std::int64_t group = g.heads / g.kv_heads;
  scratch.load(g, base, rows, kv_head);
  for (std::size_t ks = 0; ks < unit.size(); ++ks) {
    for (std::int64_t key = unit[ks].begin; key < unit[ks].end; key += kTile) {
      tile.key = key - base;
      tile.keys = std::min(kTile, unit[ks].end - key);
      tile.position = unit[ks].first_position + key - unit[ks].begin;
      tile.load(scratch);
      for (std::size_t qs = ks; qs < unit.size(); ++qs) {
        if (qs != ks && unit[qs].parent != unit_index + static_cast<std::int64_t>(ks)) continue;
        const std::int64_t start =
            qs == ks ? unit[qs].begin + (key - unit[ks].begin) / kTile * kTile : unit[qs].begin;
        for (std::int64_t h = 0; h < group; ++h) {
          for (std::int64_t row = start; row < unit[qs].end; row += kTile) {
            const std::int64_t position = unit[qs].first_position + row - unit[qs].begin;
            if (g.window != 0 && position - g.window >= tile.position + tile.keys - 1) continue;
            attention_tile(g, scratch, tile, rows, h, row - base,
                           std::min(kTile, unit[qs].end - row), position);
          }
        }
      }
    }
  }
  scratch.store(g, base, rows, kv_head);
}

}  // namespace
}  // namespace weft::nn
