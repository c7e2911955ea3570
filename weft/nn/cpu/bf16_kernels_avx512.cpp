// bf16 products by VDPBF16PS: a lane is one output, and each instruction adds
// one pair of columns, the odd product first, in ascending pairs.

#include "weft/nn/cpu/bf16_convert_avx512.h"
#include "weft/nn/cpu/bf16_kernels.h"
#include "weft/nn/cpu/dequantize_avx512.h"

namespace weft::nn {
namespace {

inline __m512bh splat_pair(const std::uint16_t* p) {
  int pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return (__m512bh)_mm512_set1_epi32(pair);
}

// R rows (in one block of 16) by S strips.
template <int R, int S>
inline void tile(const Bf16Block& b, std::int64_t row, std::int64_t strip) {
  float* y = b.y + row * b.ldy + strip * 16;
  __m512 sums[R][S];
  for (int r = 0; r < R; ++r) {
    for (int s = 0; s < S; ++s) {
      const __mmask16 mask = first_lanes(b.columns - (strip + s) * 16);
      sums[r][s] =
          b.accumulate ? _mm512_maskz_loadu_ps(mask, y + r * b.ldy + s * 16) : _mm512_setzero_ps();
    }
  }
  const std::uint16_t* a = b.x + row / 16 * b.x_stride + row % 16 * 32;
  const std::uint16_t* w = b.w + strip * b.strip_stride;
  for (std::int64_t chunk = 0; chunk < b.chunks; ++chunk, a += 512, w += 512) {
#pragma GCC unroll 2
    for (int pair = 0; pair < 16; ++pair) {
      __m512bh v[S];
      for (int s = 0; s < S; ++s) {
        v[s] = (__m512bh)_mm512_load_si512(w + s * b.strip_stride + pair * 32);
      }
      for (int r = 0; r < R; ++r) {
        const __m512bh x = splat_pair(a + r * 32 + pair * 2);
        for (int s = 0; s < S; ++s) sums[r][s] = _mm512_dpbf16_ps(sums[r][s], x, v[s]);
      }
    }
  }
  for (int s = 0; s < S; ++s) {
    const __mmask16 mask = first_lanes(b.columns - (strip + s) * 16);
    const __m512 bias = b.bias == nullptr ? _mm512_setzero_ps()
                                          : _mm512_maskz_loadu_ps(mask, b.bias + (strip + s) * 16);
    for (int r = 0; r < R; ++r) {
      const __m512 value = b.bias == nullptr ? sums[r][s] : _mm512_add_ps(sums[r][s], bias);
      _mm512_mask_storeu_ps(y + r * b.ldy + s * 16, mask, value);
    }
  }
}

template <int S>
inline void rows_of_strips(const Bf16Block& b, std::int64_t strip) {
  std::int64_t row = b.row;
  const std::int64_t end = b.row + b.rows;
  for (; row + 8 <= end; row += 8) tile<8, S>(b, row, strip);
  if (row + 4 <= end) {
    tile<4, S>(b, row, strip);
    row += 4;
  }
  for (; row < end; ++row) tile<1, S>(b, row, strip);
}

void product_avx512(const Bf16Block& b) {
  std::int64_t strip = 0;
  if (b.rows < 4) {
    // Few rows: eight strips at once hide the instruction's latency.
    for (; strip + 8 <= b.strips; strip += 8) {
      for (std::int64_t row = b.row; row < b.row + b.rows; ++row) tile<1, 8>(b, row, strip);
    }
  }
  for (; strip + 2 <= b.strips; strip += 2) rows_of_strips<2>(b, strip);
  for (; strip < b.strips; ++strip) rows_of_strips<1>(b, strip);
}

// R rows of dw (in one block of 16) by S tiles of 16 columns.
template <int R, int S>
inline void gradient_tile(const Bf16Gradient& g, std::int64_t o, std::int64_t column_tile) {
  float* dw = g.dw + o * g.lddw + column_tile * 16;
  __m512 sums[R][S];
  for (int s = 0; s < S; ++s) {
    const __mmask16 mask = first_lanes(g.in - (column_tile + s) * 16);
    for (int r = 0; r < R; ++r) sums[r][s] = _mm512_maskz_loadu_ps(mask, dw + r * g.lddw + s * 16);
  }
  const std::uint16_t* a = g.dy + o / 16 * g.stride + o % 16 * 32;
  const std::uint16_t* x = g.x + column_tile * g.stride;
  for (std::int64_t chunk = 0; chunk < g.chunks; ++chunk) {
    for (int pair = 0; pair < 16; ++pair) {
      __m512bh v[S];
      for (int s = 0; s < S; ++s) v[s] = (__m512bh)_mm512_load_si512(x + s * g.stride + pair * 32);
      for (int r = 0; r < R; ++r) {
        const __m512bh d = splat_pair(a + r * 32 + pair * 2);
        for (int s = 0; s < S; ++s) sums[r][s] = _mm512_dpbf16_ps(sums[r][s], d, v[s]);
      }
    }
    a += 512;
    x += 512;
  }
  for (int s = 0; s < S; ++s) {
    const __mmask16 mask = first_lanes(g.in - (column_tile + s) * 16);
    for (int r = 0; r < R; ++r) _mm512_mask_storeu_ps(dw + r * g.lddw + s * 16, mask, sums[r][s]);
  }
}

template <int R>
inline void gradient_rows(const Bf16Gradient& g, std::int64_t o) {
  const std::int64_t in_tiles = (g.in + 15) / 16;
  std::int64_t t = 0;
  for (; t + 2 <= in_tiles; t += 2) gradient_tile<R, 2>(g, o, t);
  if (t < in_tiles) gradient_tile<R, 1>(g, o, t);
}

void gradient_avx512(const Bf16Gradient& g) {
  std::int64_t o = g.out_begin;
  for (; o + 8 <= g.out_end; o += 8) gradient_rows<8>(g, o);
  for (; o < g.out_end; ++o) gradient_rows<1>(g, o);
}

}  // namespace

const Bf16Kernels kBf16KernelsAvx512 = {convert_avx512,  product_avx512, convert_gradient_avx512,
                                        gradient_avx512, pack_avx512,    dequantize_avx512,
                                        nullptr};

}  // namespace weft::nn
