// attention_backward_lanes.h with its five products on AMX tiles: q, k, v, dO, P and
// dS are rounded to bf16, sums are f32. Everything is computed transposed, keys by
// queries, so that no tile has to be transposed between products:
//   S^T = K Q^T,  dP^T = V dO^T,  dV += P^T dO,  dK += dS^T Q,  dQ^T += K^T dS^T.
// Tiles are 32 keys by 32 queries of one segment; segments are padded with zero rows.
#include <algorithm>
#include <vector>

#include "weft/nn/cpu/lanes_avx512.h"
// The lanes above come first: these are written on them.
#include "weft/nn/cpu/bf16_convert_avx512.h"
#include "weft/nn/cpu/ops_backward_kernels.h"
#include "weft/nn/cpu/tiles_amx.h"
#include "weft/nn/cpu/transcendental_lanes.h"

namespace weft::nn {
namespace {

constexpr std::int64_t kBlock = 32;

std::int64_t padded(std::int64_t rows) { return (rows + kBlock - 1) / kBlock * kBlock; }

// Where a segment's rows lie in the scratch of its unit.
struct Place {
  std::int64_t begin, rows;  // begin: a multiple of 32; rows: without padding
};

// Arrays of one unit and key head. B operands hold pairs of the summed index in one
// dword: [pair][column].
struct Scratch {
  std::int64_t width = 0, rows = 0, group = 0;
  std::vector<Place> places;
  std::vector<std::uint16_t> k, v;          // [rows][width]
  std::vector<std::uint16_t> k_transposed;  // [rows / 32][width][32 keys]
  // Per query head, each [rows / 32] blocks of 32 width values:
  std::vector<std::uint16_t> q_by_dim, dout_by_dim;  // [2 halves][width / 2][16 queries]
  std::vector<std::uint16_t> q_by_row, dout_by_row;  // [width / 16][16 pairs][16 dims]
  std::vector<float> lse, delta;                     // [group][rows]
  std::vector<float> dq;                             // [group][rows / 16][width][16 queries]
  std::vector<float> dk, dv;                         // [rows][width]

  void load(const AttentionGradient& g, std::span<const Segment> unit, std::int64_t kv_head);
  void load_head(const AttentionGradient& g, std::span<const Segment> unit, std::int64_t head,
                 std::int64_t h);
  void store(const AttentionGradient& g, std::span<const Segment> unit, std::int64_t kv_head) const;
};

// Row-major bf16 copy of n floats, zero-padded to `width` (a multiple of 32).
void round_row(const float* from, std::int64_t n, std::int64_t width, std::uint16_t* to) {
  for (std::int64_t d = 0; d < width; d += 32) {
    _mm512_storeu_si512(to + d, round_32(from + d, std::max<std::int64_t>(n - d, 0)));
  }
}

// One block of 32 rows in bf16 [32][width] to both forms of a B operand.
void as_operands(const std::uint16_t* rows, std::int64_t width, std::uint16_t* by_dim,
                 std::uint16_t* by_row) {
  for (std::int64_t half = 0; half < 2; ++half) {
    for (std::int64_t d = 0; d < width; d += 32) {
      __m512i v[16];
      for (int i = 0; i < 16; ++i) {
        v[i] = _mm512_loadu_si512(rows + (half * 16 + i) * width + d);
      }
      transpose_dwords(v);
      for (int i = 0; i < 16; ++i) {
        _mm512_storeu_si512(by_dim + (half * (width / 2) + d / 2 + i) * 32, v[i]);
      }
    }
  }
  for (std::int64_t pair = 0; pair < 16; ++pair) {
    for (std::int64_t d = 0; d < width; d += 16) {
      const __m512i even = _mm512_cvtepu16_epi32(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows + 2 * pair * width + d)));
      const __m512i odd = _mm512_cvtepu16_epi32(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows + (2 * pair + 1) * width + d)));
      _mm512_storeu_si512(by_row + (d / 16 * 16 + pair) * 32,
                          _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
    }
  }
}

void Scratch::load_head(const AttentionGradient& g, std::span<const Segment> unit,
                        std::int64_t head, std::int64_t h) {
  const std::int64_t ld = (g.heads + 2 * g.kv_heads) * g.head_dim;
  std::vector<std::uint16_t> block(static_cast<std::size_t>(kBlock * width));
  for (std::size_t s = 0; s < unit.size(); ++s) {
    for (std::int64_t first = 0; first < padded(places[s].rows); first += kBlock) {
      const std::int64_t at = places[s].begin + first;
      const std::int64_t count = std::min(kBlock, places[s].rows - first);
      const std::int64_t row = unit[s].begin + first, to = (h * rows + at) * width;
      for (const bool gradient : {false, true}) {
        std::fill(block.begin(), block.end(), 0);
        for (std::int64_t i = 0; i < count; ++i) {
          round_row(gradient ? g.dout + ((row + i) * g.heads + head) * g.head_dim
                             : g.qkv + (row + i) * ld + head * g.head_dim,
                    g.head_dim, width, &block[i * width]);
        }
        as_operands(block.data(), width, gradient ? &dout_by_dim[to] : &q_by_dim[to],
                    gradient ? &dout_by_row[to] : &q_by_row[to]);
      }
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t out = ((row + i) * g.heads + head) * g.head_dim;
        Lanes total = splat(0.0F);
        std::int64_t d = 0;
        for (; d + 16 <= g.head_dim; d += 16) {
          total = fma(nn::load(g.dout + out + d), nn::load(g.out + out + d), total);
        }
        if (d < g.head_dim) {
          total = fma(load_part(g.dout + out + d, g.head_dim - d, 0.0F),
                      load_part(g.out + out + d, g.head_dim - d, 0.0F), total);
        }
        delta[h * rows + at + i] = sum(total);
        lse[h * rows + at + i] = g.logsumexp[(row + i) * g.heads + head];
      }
    }
  }
}

void Scratch::load(const AttentionGradient& g, std::span<const Segment> unit,
                   std::int64_t kv_head) {
  width = padded(g.head_dim);
  group = g.heads / g.kv_heads;
  rows = 0;
  places.clear();
  for (const Segment& segment : unit) {
    places.push_back({rows, segment.end - segment.begin});
    rows += padded(segment.end - segment.begin);
  }
  const auto size = static_cast<std::size_t>(rows * width);
  const auto heads = static_cast<std::size_t>(group);
  for (auto* array : {&k, &v, &k_transposed}) array->assign(size, 0);
  for (auto* array : {&q_by_dim, &dout_by_dim, &q_by_row, &dout_by_row}) {
    array->resize(heads * size);
  }
  for (auto* array : {&lse, &delta}) {
    array->assign(static_cast<std::size_t>(group * rows), 0.0F);
  }
  dq.assign(heads * size, 0.0F);
  for (auto* array : {&dk, &dv}) array->assign(size, 0.0F);
  const std::int64_t ld = (g.heads + 2 * g.kv_heads) * g.head_dim;
  for (std::size_t s = 0; s < unit.size(); ++s) {
    for (std::int64_t i = 0; i < places[s].rows; ++i) {
      const float* row = g.qkv + (unit[s].begin + i) * ld + (g.heads + kv_head) * g.head_dim;
      const std::int64_t at = places[s].begin + i;
      round_row(row, g.head_dim, width, &k[at * width]);
      round_row(row + g.kv_heads * g.head_dim, g.head_dim, width, &v[at * width]);
      std::uint16_t* column = &k_transposed[at / kBlock * kBlock * width + at % kBlock];
      for (std::int64_t d = 0; d < g.head_dim; ++d) column[d * kBlock] = k[at * width + d];
    }
  }
  for (std::int64_t h = 0; h < group; ++h) load_head(g, unit, kv_head * group + h, h);
}

void Scratch::store(const AttentionGradient& g, std::span<const Segment> unit,
                    std::int64_t kv_head) const {
  const std::int64_t ld = (g.heads + 2 * g.kv_heads) * g.head_dim;
  for (std::size_t s = 0; s < unit.size(); ++s) {
    for (std::int64_t i = 0; i < places[s].rows; ++i) {
      float* row = g.dqkv + (unit[s].begin + i) * ld;
      const std::int64_t at = places[s].begin + i;
      std::copy_n(&dk[at * width], g.head_dim, row + (g.heads + kv_head) * g.head_dim);
      std::copy_n(&dv[at * width], g.head_dim, row + (g.heads + g.kv_heads + kv_head) * g.head_dim);
      for (std::int64_t h = 0; h < group; ++h) {
        const float* from = &dq[(h * rows + at / 16 * 16) * width + at % 16];
        float* to = row + (kv_head * group + h) * g.head_dim;
        for (std::int64_t d = 0; d < g.head_dim; ++d) to[d] = from[d * 16];
      }
    }
  }
}

// c[32 keys][32 queries] = a b: a is [32][width] bf16, b the two halves by_dim.
void scores(const std::uint16_t* a, const std::uint16_t* b, std::int64_t width, float* c) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::int64_t d = 0; d < width; d += 32) {
    WEFT_TILE_LOAD(4, a + d, width * 2);
    WEFT_TILE_LOAD(5, a + 16 * width + d, width * 2);
    WEFT_TILE_LOAD(6, b + d * 16, 64);
    WEFT_TILE_LOAD(7, b + (width + d) * 16, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  WEFT_TILE_STORE(0, c, kBlock * 4);
  WEFT_TILE_STORE(1, c + 16, kBlock * 4);
  WEFT_TILE_STORE(2, c + 16 * kBlock, kBlock * 4);
  WEFT_TILE_STORE(3, c + 16 * kBlock + 16, kBlock * 4);
}

// c[32 keys][width] += a b: a is [32 keys][32 queries] bf16, b by_row.
void add_product(const std::uint16_t* a, const std::uint16_t* b, std::int64_t width, float* c) {
  WEFT_TILE_LOAD(4, a, kBlock * 2);
  WEFT_TILE_LOAD(5, a + 16 * kBlock, kBlock * 2);
  for (std::int64_t d = 0; d < width; d += 32) {
    float *c0 = c + d, *c1 = c + 16 * width + d;
    WEFT_TILE_LOAD(6, b + d * 32, 64);
    WEFT_TILE_LOAD(7, b + (d + 16) * 32, 64);
    WEFT_TILE_LOAD(0, c0, width * 4);
    WEFT_TILE_LOAD(1, c0 + 16, width * 4);
    WEFT_TILE_LOAD(2, c1, width * 4);
    WEFT_TILE_LOAD(3, c1 + 16, width * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    WEFT_TILE_STORE(0, c0, width * 4);
    WEFT_TILE_STORE(1, c0 + 16, width * 4);
    WEFT_TILE_STORE(2, c1, width * 4);
    WEFT_TILE_STORE(3, c1 + 16, width * 4);
  }
}

// c (two halves [width][16 queries]) += a b: a is [width][32 keys], b [2][16 pairs][16].
void add_transposed(const std::uint16_t* a, const std::uint16_t* b, std::int64_t width, float* c) {
  WEFT_TILE_LOAD(6, b, 64);
  WEFT_TILE_LOAD(7, b + 16 * 32, 64);
  for (std::int64_t d = 0; d < width; d += 32) {
    float *c0 = c + d * 16, *c1 = c + (width + d) * 16;
    WEFT_TILE_LOAD(4, a + d * kBlock, kBlock * 2);
    WEFT_TILE_LOAD(5, a + (d + 16) * kBlock, kBlock * 2);
    WEFT_TILE_LOAD(0, c0, 64);
    WEFT_TILE_LOAD(1, c1, 64);
    WEFT_TILE_LOAD(2, c0 + 256, 64);
    WEFT_TILE_LOAD(3, c1 + 256, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    WEFT_TILE_STORE(0, c0, 64);
    WEFT_TILE_STORE(1, c1, 64);
    WEFT_TILE_STORE(2, c0 + 256, 64);
    WEFT_TILE_STORE(3, c1 + 256, 64);
  }
}

// Lanes of 16 queries, the first at `query`, that see the key at `key` (positions).
__mmask16 visible(std::int64_t key, std::int64_t query, std::int64_t window) {
  const auto from = [](std::int64_t first) {  // lanes first, first + 1, ...
    return first <= 0 ? 0xffffU : first >= 16 ? 0U : (0xffffU << first) & 0xffffU;
  };
  std::uint32_t mask = from(key - query);
  if (window > 0) mask &= ~from(key + window - query);
  return static_cast<__mmask16>(mask);
}

struct Tile {
  std::int64_t key, keys, key_position;  // scratch row, count, position of the first
  std::int64_t query, query_position;
  std::int64_t h;
};

// What lies between the products of a tile. Tiles are taken kTogether at a time, step by
// step: a tile load waits for stores to its lines that have not left the store buffer.
constexpr std::size_t kTogether = 3;
struct alignas(64) Between {
  float p[kBlock * kBlock], ds[kBlock * kBlock];
  std::uint16_t p16[kBlock * kBlock], ds16[kBlock * kBlock], pairs[kBlock * kBlock];
};

std::int64_t offset(const Scratch& s, const Tile& t) { return (t.h * s.rows + t.query) * s.width; }

void tile_scores(const Scratch& s, const Tile& t, Between& b) {
  const std::int64_t at = offset(s, t);
  scores(&s.k[t.key * s.width], &s.q_by_dim[at], s.width, b.p);
  scores(&s.v[t.key * s.width], &s.dout_by_dim[at], s.width, b.ds);
}

// P and dS in bf16. kWhole: every query of the tile sees every key.
template <bool kWhole>
void tile_slopes(const AttentionGradient& g, const Scratch& s, const Tile& t, Between& b) {
  const Lanes scale = splat(g.scale);
  const float *lse = &s.lse[t.h * s.rows + t.query], *delta = &s.delta[t.h * s.rows + t.query];
  const Lanes sums[2] = {load(lse), load(lse + 16)}, deltas[2] = {load(delta), load(delta + 16)};
  for (std::int64_t pair = 0; pair < 16; ++pair) {
    __m512i rows[2];
    for (int odd = 0; odd < 2; ++odd) {
      const std::int64_t key = 2 * pair + odd;
      __m512 weights[2], slopes[2];
      for (int half = 0; half < 2; ++half) {
        const std::int64_t from = key * kBlock + half * 16;
        const Lanes weight = exp(sub(mul(load(b.p + from), scale), sums[half]));
        const Lanes slope = mul(mul(weight, sub(load(b.ds + from), deltas[half])), scale);
        weights[half] = weight.v;
        slopes[half] = slope.v;
        if constexpr (!kWhole) {
          const __mmask16 mask =
              key < t.keys ? visible(t.key_position + key, t.query_position + half * 16, g.window)
                           : __mmask16{0};
          weights[half] = _mm512_maskz_mov_ps(mask, weights[half]);
          slopes[half] = _mm512_maskz_mov_ps(mask, slopes[half]);
        }
      }
      _mm512_store_si512(b.p16 + key * kBlock,
                         (__m512i)_mm512_cvtne2ps_pbh(weights[1], weights[0]));
      rows[odd] = (__m512i)_mm512_cvtne2ps_pbh(slopes[1], slopes[0]);
      _mm512_store_si512(b.ds16 + key * kBlock, rows[odd]);
    }
    for (int half = 0; half < 2; ++half) {
      const auto part = [&](__m512i v) {
        return _mm512_cvtepu16_epi32(half == 0 ? _mm512_castsi512_si256(v)
                                               : _mm512_extracti64x4_epi64(v, 1));
      };
      _mm512_store_si512(b.pairs + (half * 16 + pair) * 32,
                         _mm512_or_si512(part(rows[0]), _mm512_slli_epi32(part(rows[1]), 16)));
    }
  }
}

void add_gradients(Scratch& s, const Tile& t, const Between& b) {
  const std::int64_t at = offset(s, t);
  add_product(b.p16, &s.dout_by_row[at], s.width, &s.dv[t.key * s.width]);
  add_product(b.ds16, &s.q_by_row[at], s.width, &s.dk[t.key * s.width]);
  add_transposed(&s.k_transposed[t.key * s.width], b.pairs, s.width, &s.dq[at]);
}

// Adds the gradients of the tiles, in their order.
void tile_gradients(const AttentionGradient& g, Scratch& s, std::span<const Tile> tiles) {
  Between between[kTogether];
  for (std::size_t i = 0; i < tiles.size(); ++i) tile_scores(s, tiles[i], between[i]);
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const Tile& t = tiles[i];
    const bool whole = t.keys == kBlock && t.query_position >= t.key_position + kBlock - 1 &&
                       (g.window == 0 || t.query_position + kBlock - 1 < t.key_position + g.window);
    whole ? tile_slopes<true>(g, s, t, between[i]) : tile_slopes<false>(g, s, t, between[i]);
  }
  for (std::size_t i = 0; i < tiles.size(); ++i) add_gradients(s, tiles[i], between[i]);
}

}  // namespace

void attention_backward_amx(const AttentionGradient& g, std::span<const Segment> unit,
                            std::int64_t unit_index, std::int64_t kv_head) {
  thread_local Scratch s;
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = 16;
    config.column_bytes[tile] = 64;
  }
  s.load(g, unit, kv_head);
  load_config(config);
  Tile waiting[kTogether];
  std::size_t count = 0;
  for (std::size_t ks = 0; ks < unit.size(); ++ks) {
    for (std::int64_t key = 0; key < s.places[ks].rows; key += kBlock) {
      Tile tile{.key = s.places[ks].begin + key,
                .keys = std::min(kBlock, s.places[ks].rows - key),
                .key_position = unit[ks].first_position + key,
                .query = 0,
                .query_position = 0,
                .h = 0};
      for (std::size_t qs = ks; qs < unit.size(); ++qs) {
        if (qs != ks && unit[qs].parent != unit_index + static_cast<std::int64_t>(ks)) continue;
        for (tile.h = 0; tile.h < s.group; ++tile.h) {
          for (std::int64_t row = qs == ks ? key : 0; row < s.places[qs].rows; row += kBlock) {
            tile.query = s.places[qs].begin + row;
            tile.query_position = unit[qs].first_position + row;
            if (g.window != 0 &&
                tile.query_position - g.window >= tile.key_position + tile.keys - 1) {
              continue;
            }
            waiting[count++] = tile;
            if (count == kTogether) {
              tile_gradients(g, s, waiting);
              count = 0;
            }
          }
        }
      }
    }
  }
  tile_gradients(g, s, std::span(waiting, count));
  _tile_release();
  s.store(g, unit, kv_head);
}

}  // namespace weft::nn
