// bf16 products by TDPBF16PS. Tiles 0-3 are sums, 4-5 rows of x, 6-7 strips of
// w. A chunk of 32 columns is one instruction: its even and its odd products are
// summed apart over 16 pairs, added, and the result added to the sum.
#include <immintrin.h>

#include <algorithm>

#include "weft/nn/cpu/bf16_convert_avx512.h"
#include "weft/nn/cpu/bf16_kernels.h"
#include "weft/nn/cpu/dequantize_avx512.h"
#include "weft/nn/cpu/tiles_amx.h"

namespace weft::nn {
namespace {

constexpr std::int64_t kTile = 512;    // bf16 of a tile
constexpr std::int64_t kTileRow = 64;  // bytes

// Sums of `first` and `second` rows (tiles 0, 1 and 2, 3; x in 4 and 5).
void configure(std::int64_t first, std::int64_t second) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.column_bytes[t] = 64;
    config.rows[t] = 16;
  }
  const auto a = static_cast<std::uint8_t>(first), b = static_cast<std::uint8_t>(second);
  config.rows[0] = config.rows[1] = config.rows[4] = a;
  config.rows[2] = config.rows[3] = config.rows[5] = b;
  load_config(config);
}

// All four sums of `rows` rows (tiles 0-3; x in 4).
void configure_one(std::int64_t rows) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.column_bytes[t] = 64;
    config.rows[t] = static_cast<std::uint8_t>(t < 5 ? rows : 16);
  }
  load_config(config);
}

// Where one sum tile goes: up to 16 by 16 floats of y.
struct Target {
  float* y;
  std::int64_t ldy, rows, columns;
  const float* bias;
};

inline Target target(const Bf16Block& b, std::int64_t row, std::int64_t rows, std::int64_t strip) {
  return {b.y + row * b.ldy + strip * 16, b.ldy, rows, b.columns - strip * 16,
          b.bias == nullptr ? nullptr : b.bias + strip * 16};
}
inline bool direct(const Target& t) { return t.columns >= 16 && t.bias == nullptr; }

// Copies y into a 16 x 16 buffer for a tile load, or adds the bias on the way back.
void fetch(const Target& t, float* buffer) {
  const __mmask16 mask = first_lanes(t.columns);
  for (std::int64_t r = 0; r < t.rows; ++r) {
    _mm512_store_ps(buffer + r * 16, _mm512_maskz_loadu_ps(mask, t.y + r * t.ldy));
  }
}
void deliver(const Target& t, const float* buffer) {
  const __mmask16 mask = first_lanes(t.columns);
  const __m512 bias = t.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, t.bias);
  for (std::int64_t r = 0; r < t.rows; ++r) {
    __m512 v = _mm512_load_ps(buffer + r * 16);
    if (t.bias != nullptr) v = _mm512_add_ps(v, bias);
    _mm512_mask_storeu_ps(t.y + r * t.ldy, mask, v);
  }
}

#define WEFT_BEGIN_SUM(tile, place)                   \
  if (!b.accumulate) {                                \
    _tile_zero(tile);                                 \
  } else if ((place).columns >= 16) {                 \
    WEFT_TILE_LOAD(tile, (place).y, (place).ldy * 4); \
  } else {                                            \
    fetch(place, buffer);                             \
    WEFT_TILE_LOAD(tile, buffer, kTileRow);           \
  }
#define WEFT_END_SUM(tile, place)                      \
  if (direct(place)) {                                 \
    WEFT_TILE_STORE(tile, (place).y, (place).ldy * 4); \
  } else {                                             \
    WEFT_TILE_STORE(tile, buffer, kTileRow);           \
    deliver(place, buffer);                            \
  }

// Two row tiles by two strips: every tile loaded is used twice.
void tile_2x2(const Bf16Block& b, std::int64_t row, std::int64_t second_rows, std::int64_t strip) {
  alignas(64) float buffer[256];
  const Target t0 = target(b, row, 16, strip), t1 = target(b, row, 16, strip + 1);
  const Target t2 = target(b, row + 16, second_rows, strip);
  const Target t3 = target(b, row + 16, second_rows, strip + 1);
  WEFT_BEGIN_SUM(0, t0)
  WEFT_BEGIN_SUM(1, t1)
  WEFT_BEGIN_SUM(2, t2)
  WEFT_BEGIN_SUM(3, t3)
  const std::int64_t chunks = b.chunks;
  const std::uint16_t* a0 = b.x + row / 16 * b.x_stride;
  const std::uint16_t* a1 = a0 + b.x_stride;
  const std::uint16_t* w0 = b.w + strip * b.strip_stride;
  const std::uint16_t* w1 = w0 + b.strip_stride;
  // The sums' lines of y are fetched while the products run, a few with each chunk:
  // all at once they would fill the line buffers that the tile loads need. `row_step`
  // rows a chunk cover them.
  const bool fetch_sums = direct(t3);
  const std::int64_t lines = fetch_sums ? 16 + second_rows : 0;
  const std::int64_t row_step = (lines + chunks - 1) / chunks;
  std::int64_t line = 0;
  for (std::int64_t c = 0; c < chunks; ++c) {
    for (std::int64_t end = std::min(line + row_step, lines); line < end; ++line) {
      __builtin_prefetch(t0.y + line * b.ldy, 1);
      __builtin_prefetch(t1.y + line * b.ldy, 1);
    }
    // Loads between the products: 10 % faster than all loads first. w streams past
    // the first-level cache, which is left to x: a quarter faster again.
    WEFT_TILE_STREAM(6, w0 + c * kTile, kTileRow);
    WEFT_TILE_LOAD(4, a0 + c * kTile, kTileRow);
    _tile_dpbf16ps(0, 4, 6);
    WEFT_TILE_STREAM(7, w1 + c * kTile, kTileRow);
    _tile_dpbf16ps(1, 4, 7);
    WEFT_TILE_LOAD(5, a1 + c * kTile, kTileRow);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  WEFT_END_SUM(0, t0)
  WEFT_END_SUM(1, t1)
  WEFT_END_SUM(2, t2)
  WEFT_END_SUM(3, t3)
}

// Two row tiles by one strip.
void tile_2x1(const Bf16Block& b, std::int64_t row, std::int64_t second_rows, std::int64_t strip) {
  alignas(64) float buffer[256];
  const Target t0 = target(b, row, 16, strip), t2 = target(b, row + 16, second_rows, strip);
  WEFT_BEGIN_SUM(0, t0)
  WEFT_BEGIN_SUM(2, t2)
  const std::int64_t chunks = b.chunks;
  const std::uint16_t* a0 = b.x + row / 16 * b.x_stride;
  const std::uint16_t* a1 = a0 + b.x_stride;
  const std::uint16_t* w0 = b.w + strip * b.strip_stride;
  for (std::int64_t c = 0; c < chunks; ++c) {
    WEFT_TILE_LOAD(6, w0 + c * kTile, kTileRow);
    WEFT_TILE_LOAD(4, a0 + c * kTile, kTileRow);
    WEFT_TILE_LOAD(5, a1 + c * kTile, kTileRow);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
  }
  WEFT_END_SUM(0, t0)
  WEFT_END_SUM(2, t2)
}

// One row tile by four strips, for up to 16 rows.
void tile_1x4(const Bf16Block& b, std::int64_t row, std::int64_t rows, std::int64_t strip) {
  alignas(64) float buffer[256];
  const Target t0 = target(b, row, rows, strip), t1 = target(b, row, rows, strip + 1);
  const Target t2 = target(b, row, rows, strip + 2), t3 = target(b, row, rows, strip + 3);
  WEFT_BEGIN_SUM(0, t0)
  WEFT_BEGIN_SUM(1, t1)
  WEFT_BEGIN_SUM(2, t2)
  WEFT_BEGIN_SUM(3, t3)
  const std::int64_t chunks = b.chunks, stride = b.strip_stride;
  const std::uint16_t* a = b.x + row / 16 * b.x_stride;
  const std::uint16_t* w = b.w + strip * stride;
  for (std::int64_t c = 0; c < chunks; ++c, w += kTile) {
    WEFT_TILE_LOAD(4, a + c * kTile, kTileRow);
    WEFT_TILE_LOAD(6, w, kTileRow);
    _tile_dpbf16ps(0, 4, 6);
    WEFT_TILE_LOAD(7, w + stride, kTileRow);
    _tile_dpbf16ps(1, 4, 7);
    WEFT_TILE_LOAD(6, w + 2 * stride, kTileRow);
    _tile_dpbf16ps(2, 4, 6);
    WEFT_TILE_LOAD(7, w + 3 * stride, kTileRow);
    _tile_dpbf16ps(3, 4, 7);
  }
  WEFT_END_SUM(0, t0)
  WEFT_END_SUM(1, t1)
  WEFT_END_SUM(2, t2)
  WEFT_END_SUM(3, t3)
}

void tile_1x1(const Bf16Block& b, std::int64_t row, std::int64_t rows, std::int64_t strip) {
  alignas(64) float buffer[256];
  const Target t0 = target(b, row, rows, strip);
  WEFT_BEGIN_SUM(0, t0)
  const std::int64_t chunks = b.chunks;
  const std::uint16_t* a = b.x + row / 16 * b.x_stride;
  const std::uint16_t* w = b.w + strip * b.strip_stride;
  for (std::int64_t c = 0; c < chunks; ++c) {
    WEFT_TILE_LOAD(4, a + c * kTile, kTileRow);
    WEFT_TILE_LOAD(6, w + c * kTile, kTileRow);
    _tile_dpbf16ps(0, 4, 6);
  }
  WEFT_END_SUM(0, t0)
}

void row_tile(const Bf16Block& b, std::int64_t row, std::int64_t rows) {
  configure_one(rows);
  std::int64_t strip = 0;
  for (; strip + 4 <= b.strips; strip += 4) tile_1x4(b, row, rows, strip);
  for (; strip < b.strips; ++strip) tile_1x1(b, row, rows, strip);
}

// Up to 64 rows by one strip, weights from memory. They are one stream of bytes,
// asked for 4 KiB ahead (some 100 ns at 30 GB/s; 2 and 8 KiB are slower): against
// four strips at once and the hardware's prefetcher alone, 23 instead of 17 GB/s of
// the 29 that a plain read reaches on two cores. A KiB of weights then takes 90 ns
// of a core's share, its products with 64 rows 30.
template <int R>
void stream_strip(const Bf16Block& b, std::int64_t last_rows, std::int64_t strip) {
  constexpr std::int64_t kAheadBytes = 4096;
  alignas(64) float buffer[256];
  const Target t0 = target(b, b.row, R == 1 ? last_rows : 16, strip);
  const Target t1 = target(b, b.row + 16, R == 2 ? last_rows : 16, strip);
  const Target t2 = target(b, b.row + 32, R == 3 ? last_rows : 16, strip);
  const Target t3 = target(b, b.row + 48, last_rows, strip);
  WEFT_BEGIN_SUM(0, t0)
  if constexpr (R > 1) {
    WEFT_BEGIN_SUM(1, t1)
  }
  if constexpr (R > 2) {
    WEFT_BEGIN_SUM(2, t2)
  }
  if constexpr (R > 3) {
    WEFT_BEGIN_SUM(3, t3)
  }
  const std::int64_t chunks = b.chunks, stride = b.x_stride;
  const std::uint16_t* a = b.x + b.row / 16 * stride;
  const std::uint16_t* w = b.w + strip * b.strip_stride;
  for (std::int64_t c = 0; c < chunks; ++c, a += kTile, w += kTile) {
    for (std::int64_t at = 0; at < 1024; at += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(w) + kAheadBytes + at, _MM_HINT_T0);
    }
    WEFT_TILE_LOAD(6, w, kTileRow);
    if constexpr (R == 1) {
      WEFT_TILE_LOAD(5, a, kTileRow);
      _tile_dpbf16ps(0, 5, 6);
    } else {
      WEFT_TILE_LOAD(4, a, kTileRow);
      _tile_dpbf16ps(0, 4, 6);
    }
    if constexpr (R == 2) {
      WEFT_TILE_LOAD(5, a + stride, kTileRow);
      _tile_dpbf16ps(1, 5, 6);
    } else if constexpr (R > 2) {
      WEFT_TILE_LOAD(7, a + stride, kTileRow);
      _tile_dpbf16ps(1, 7, 6);
    }
    if constexpr (R == 3) {
      WEFT_TILE_LOAD(5, a + 2 * stride, kTileRow);
      _tile_dpbf16ps(2, 5, 6);
    } else if constexpr (R > 3) {
      WEFT_TILE_LOAD(4, a + 2 * stride, kTileRow);
      _tile_dpbf16ps(2, 4, 6);
      WEFT_TILE_LOAD(5, a + 3 * stride, kTileRow);
      _tile_dpbf16ps(3, 5, 6);
    }
  }
  WEFT_END_SUM(0, t0)
  if constexpr (R > 1) {
    WEFT_END_SUM(1, t1)
  }
  if constexpr (R > 2) {
    WEFT_END_SUM(2, t2)
  }
  if constexpr (R > 3) {
    WEFT_END_SUM(3, t3)
  }
}

// Tiles 0 to R - 1 are sums, of which the last has `last_rows`, as has x in tile 5.
template <int R>
void stream_strips(const Bf16Block& b) {
  const std::int64_t last_rows = b.rows - (R - 1) * 16;
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.column_bytes[t] = 64;
    config.rows[t] = 16;
  }
  config.rows[R - 1] = config.rows[5] = static_cast<std::uint8_t>(last_rows);
  load_config(config);
  for (std::int64_t strip = 0; strip < b.strips; ++strip) stream_strip<R>(b, last_rows, strip);
}

void product_stream(const Bf16Block& b) {
  switch ((b.rows + 15) / 16) {
    case 1:
      return stream_strips<1>(b);
    case 2:
      return stream_strips<2>(b);
    case 3:
      return stream_strips<3>(b);
    default:
      return stream_strips<4>(b);
  }
}

void product_amx(const Bf16Block& b) {
  if (b.stream) {
    product_stream(b);
    _tile_release();
    return;
  }
  std::int64_t row = b.row;
  const std::int64_t end = b.row + b.rows;
  std::int64_t configured = 0;
  for (; row + 16 < end; row += 32) {
    const std::int64_t second = end - row - 16 < 16 ? end - row - 16 : 16;
    if (configured != second) configure(16, second);
    configured = second;
    std::int64_t strip = 0;
    for (; strip + 2 <= b.strips; strip += 2) {
      tile_2x2(b, row, second, strip);
    }
    if (strip < b.strips) tile_2x1(b, row, second, strip);
  }
  if (row < end) row_tile(b, row, end - row);
  _tile_release();
}

// dw: 32 outputs by 32 columns, or the parts of it that exist.
void gradient_2x2(const Bf16Gradient& g, std::int64_t o, std::int64_t column) {
  alignas(64) float buffers[4][256];
  const bool two_rows = o + 16 < g.out, two_columns = column + 16 < g.in;
  Target t[4];
  for (int i = 0; i < 4; ++i) {
    const std::int64_t row = o + i / 2 * 16, at = column + i % 2 * 16;
    const std::int64_t rows = g.out - row < 16 ? g.out - row : 16;
    t[i] = {g.dw + row * g.lddw + at, g.lddw, rows, g.in - at, nullptr};
  }
  const bool whole = t[3].rows == 16 && t[3].columns >= 16;
  if (whole) {
    WEFT_TILE_LOAD(0, t[0].y, g.lddw * 4);
    WEFT_TILE_LOAD(1, t[1].y, g.lddw * 4);
    WEFT_TILE_LOAD(2, t[2].y, g.lddw * 4);
    WEFT_TILE_LOAD(3, t[3].y, g.lddw * 4);
  } else {
    for (int i = 0; i < 4; ++i) {
      if (t[i].rows > 0 && t[i].columns > 0) fetch(t[i], buffers[i]);
    }
    WEFT_TILE_LOAD(0, buffers[0], kTileRow);
    WEFT_TILE_LOAD(1, buffers[1], kTileRow);
    WEFT_TILE_LOAD(2, buffers[2], kTileRow);
    WEFT_TILE_LOAD(3, buffers[3], kTileRow);
  }
  const std::uint16_t* a0 = g.dy + o / 16 * g.stride;
  const std::uint16_t* a1 = two_rows ? a0 + g.stride : a0;
  const std::uint16_t* x0 = g.x + column / 16 * g.stride;
  const std::uint16_t* x1 = two_columns ? x0 + g.stride : x0;
  // The next sums, those of the next 32 outputs, are fetched meanwhile.
  const std::int64_t lines = o + 64 <= g.out_end && whole ? 32 : 0;
  const std::int64_t row_step = (lines + g.chunks - 1) / g.chunks;
  const float* next = t[0].y + 32 * g.lddw;
  std::int64_t line = 0;
  for (std::int64_t c = 0; c < g.chunks; ++c) {
    for (std::int64_t end = std::min(line + row_step, lines); line < end; ++line) {
      __builtin_prefetch(next + line * g.lddw, 1);
      __builtin_prefetch(next + line * g.lddw + 16, 1);
    }
    WEFT_TILE_LOAD(6, x0 + c * kTile, kTileRow);
    WEFT_TILE_STREAM(4, a0 + c * kTile, kTileRow);
    _tile_dpbf16ps(0, 4, 6);
    WEFT_TILE_LOAD(7, x1 + c * kTile, kTileRow);
    _tile_dpbf16ps(1, 4, 7);
    WEFT_TILE_STREAM(5, a1 + c * kTile, kTileRow);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  if (whole) {
    WEFT_TILE_STORE(0, t[0].y, g.lddw * 4);
    WEFT_TILE_STORE(1, t[1].y, g.lddw * 4);
    WEFT_TILE_STORE(2, t[2].y, g.lddw * 4);
    WEFT_TILE_STORE(3, t[3].y, g.lddw * 4);
  } else {
    WEFT_TILE_STORE(0, buffers[0], kTileRow);
    WEFT_TILE_STORE(1, buffers[1], kTileRow);
    WEFT_TILE_STORE(2, buffers[2], kTileRow);
    WEFT_TILE_STORE(3, buffers[3], kTileRow);
    for (int i = 0; i < 4; ++i) {
      if (t[i].rows > 0 && t[i].columns > 0) deliver(t[i], buffers[i]);
    }
  }
}

// A pair of column tiles stays in the first-level cache over the outputs.
void gradient_amx(const Bf16Gradient& g) {
  configure(16, 16);
  for (std::int64_t column = 0; column < g.in; column += 32) {
    for (std::int64_t o = g.out_begin; o < g.out_end; o += 32) gradient_2x2(g, o, column);
  }
  _tile_release();
}

// Few rows of x times quantised weights: the weights, in their natural rows, are
// the left operand and x the right one, so a block of 32 is one tile row and needs
// no transposition. Products commute, so the sums have the bits of product_amx.
// Up to three whole blocks of 16 rows of x (sums in tiles 1-3, x in 7) and a last one
// of `tail` rows (sums in tile 0, x in 6); weights in tile 4.
void configure_few(std::int64_t tail) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.rows[t] = 16;
    config.column_bytes[t] = 64;
  }
  config.column_bytes[0] = config.column_bytes[6] = static_cast<std::uint16_t>(4 * tail);
  load_config(config);
}

// Per chunk: whole blocks as [16 pairs][16 rows][2], then the last as
// [16 pairs][tail][2].
void transpose_x(const Bf16QuantBlock& b) {
  const std::int64_t whole = (b.rows - 1) / 16, tail = b.rows - whole * 16;
  auto* out = reinterpret_cast<std::uint32_t*>(b.scratch);
  for (std::int64_t c = 0; c < b.chunks; ++c) {
    for (std::int64_t block = 0; block < whole; ++block, out += 256) {
      __m512i v[16];
      const std::uint16_t* in = b.x + (block * b.chunks + c) * kTile;
      for (int r = 0; r < 16; ++r) v[r] = _mm512_load_si512(in + r * 32);
      transpose_dwords(v);
      for (int r = 0; r < 16; ++r) _mm512_storeu_si512(out + r * 16, v[r]);
    }
    const auto* in = reinterpret_cast<const std::uint32_t*>(b.x + (whole * b.chunks + c) * kTile);
    for (std::int64_t r = 0; r < tail; ++r) {
      for (std::int64_t pair = 0; pair < 16; ++pair) out[pair * tail + r] = in[r * 16 + pair];
    }
    out += 16 * tail;
  }
}

// Tiles unpacked ahead of the one being multiplied: a tile load of lines whose
// stores have not yet left the store buffer waits for them.
constexpr std::int64_t kAhead = 4;

template <int W, bool kNibbles, bool kShifted, bool kHalves>
void few_strip(const Bf16QuantBlock& b, const std::byte* strip, float* sums) {
  alignas(64) std::uint16_t ring[2 * kAhead][kTile];
  const std::int64_t tail = b.rows - W * 16, tail_stride = 4 * tail;
  const QuantFormat f = b.format;
  const std::byte* header = strip;
  const std::byte* tile = strip + f.header_bytes;
  std::int64_t in_group = 0;
  const std::uint16_t* x = b.scratch;
  const std::int64_t chunks = b.chunks;
  _tile_zero(0);
  if constexpr (W > 0) _tile_zero(1);
  if constexpr (W > 1) _tile_zero(2);
  if constexpr (W > 2) _tile_zero(3);
  for (std::int64_t c = 0; c < chunks + kAhead; ++c) {
    if (c < chunks) {
      std::uint16_t* buffer = ring[c % (2 * kAhead)];
      fetch_ahead(tile, f.tile_bytes);
      tile_rows<kNibbles, kShifted, kHalves>(
          f, header, tile, [&](int r, __m512i v) { _mm512_store_si512(buffer + r * 32, v); });
      tile += f.tile_bytes;
      if (++in_group == f.group_tiles) {
        in_group = 0;
        header = tile;
        tile += f.header_bytes;
      }
    }
    if (c < kAhead) continue;
    WEFT_TILE_LOAD(4, ring[(c - kAhead) % (2 * kAhead)], kTileRow);
    if constexpr (W > 0) {
      WEFT_TILE_LOAD(7, x, kTileRow);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (W > 1) {
      WEFT_TILE_LOAD(7, x + kTile, kTileRow);
      _tile_dpbf16ps(2, 4, 7);
    }
    if constexpr (W > 2) {
      WEFT_TILE_LOAD(7, x + 2 * kTile, kTileRow);
      _tile_dpbf16ps(3, 4, 7);
    }
    WEFT_TILE_LOAD(6, x + W * kTile, tail_stride);
    _tile_dpbf16ps(0, 4, 6);
    x += W * kTile + 32 * tail;
  }
  WEFT_TILE_STORE(0, sums + W * 256, tail_stride);
  if constexpr (W > 0) WEFT_TILE_STORE(1, sums, kTileRow);
  if constexpr (W > 1) WEFT_TILE_STORE(2, sums + 256, kTileRow);
  if constexpr (W > 2) WEFT_TILE_STORE(3, sums + 512, kTileRow);
}

template <int W>
void few_rows(const Bf16QuantBlock& b) {
  const std::int64_t tail = b.rows - W * 16;
  for (std::int64_t s = 0; s < b.strips; ++s) {
    alignas(64) float sums[1024];  // [block][16 outputs][rows of the block]
    const std::byte* strip = b.w + s * b.strip_bytes;
    switch (b.format.kind) {
      case QuantKind::kScale:
        (b.format.nibbles ? few_strip<W, true, false, false>
                          : few_strip<W, false, false, false>)(b, strip, sums);
        break;
      case QuantKind::kScaleOffset:
        few_strip<W, true, true, false>(b, strip, sums);
        break;
      case QuantKind::kScales:
        (b.format.nibbles ? few_strip<W, true, true, false>
                          : few_strip<W, false, true, false>)(b, strip, sums);
        break;
      case QuantKind::kHalfScales:
        few_strip<W, false, false, true>(b, strip, sums);
        break;
    }
    const std::int64_t left = b.columns - s * 16, width = left < 16 ? left : 16;
    for (std::int64_t r = 0; r < b.rows; ++r) {
      const std::int64_t block = r / 16, rows = block < W ? 16 : tail;
      const float* from = sums + block * 256 + r % 16;
      for (std::int64_t o = 0; o < width; ++o) {
        const float v = from[o * rows];
        b.y[r * b.ldy + s * 16 + o] = b.bias == nullptr ? v : v + b.bias[s * 16 + o];
      }
    }
  }
}

void product_few_amx(const Bf16QuantBlock& b) {
  transpose_x(b);
  const std::int64_t whole = (b.rows - 1) / 16;
  configure_few(b.rows - whole * 16);
  switch (whole) {
    case 0:
      few_rows<0>(b);
      break;
    case 1:
      few_rows<1>(b);
      break;
    case 2:
      few_rows<2>(b);
      break;
    default:
      few_rows<3>(b);
      break;
  }
  _tile_release();
}

}  // namespace

const Bf16Kernels kBf16KernelsAmx = {convert_avx512, product_amx, convert_gradient_avx512,
                                     gradient_amx,   pack_avx512, dequantize_avx512,
                                     product_few_amx};

}  // namespace weft::nn
