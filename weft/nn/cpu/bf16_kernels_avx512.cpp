// bf16 products with the arithmetic of VDPBF16PS: a lane is one output, and a pair of
// columns adds its odd product, then its even one, subnormals taken and left as zero.
// The instruction itself takes two cycles on Sapphire and Emerald Rapids, half the rate
// of two f32 FMAs in the mode that flushes subnormals, which give the same bits. So from
// four rows on, where products and not memory are the limit, the values are widened to
// f32 and multiplied by FMAs: 64 operations a cycle at most, 57 with the widening.

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

// R rows (in one block of 16) by S strips, by the instruction.
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

// What a widened tile multiplies: 16-row blocks of 32 columns and strips of w.
struct Widened {
  const std::uint16_t* a;  // the first row, in [chunk][16][32]
  const std::uint16_t* w;  // the first strip, [chunk][16 pairs][16][2]
  std::int64_t w_stride, chunks;
  bool accumulate;
  float* y;
  std::int64_t ldy, columns;  // columns: what is stored, at most 16 S
};

// R rows (in one block of 16) by S strips. Not inlined: it must run between the changes of
// the floating-point mode.
template <int R, int S>
__attribute__((noinline)) void widened_tile(const Widened& t) {
  alignas(64) float x[R][32];
  __m512 sums[R][S];
  for (int s = 0; s < S; ++s) {
    const __mmask16 mask = first_lanes(t.columns - s * 16);
    for (int r = 0; r < R; ++r) {
      sums[r][s] = t.accumulate ? _mm512_maskz_loadu_ps(mask, t.y + r * t.ldy + s * 16)
                                : _mm512_setzero_ps();
    }
  }
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
  const std::uint16_t *a = t.a, *w = t.w;
  for (std::int64_t chunk = 0; chunk < t.chunks; ++chunk, a += 512, w += 512) {
    for (int r = 0; r < R; ++r) {
      const __m512i v = _mm512_load_si512(a + r * 32);
      const auto widen = [](__m256i half) {
        return _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
      };
      _mm512_store_si512(x[r], widen(_mm512_castsi512_si256(v)));
      _mm512_store_si512(x[r] + 16, widen(_mm512_extracti64x4_epi64(v, 1)));
    }
    for (int pair = 0; pair < 16; ++pair) {
      __m512 even[S], odd[S];
      for (int s = 0; s < S; ++s) {
        const __m512i v = _mm512_load_si512(w + s * t.w_stride + pair * 32);
        even[s] = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
        odd[s] = _mm512_castsi512_ps(_mm512_and_si512(v, upper));
      }
      for (int r = 0; r < R; ++r) {
        const __m512 second = _mm512_set1_ps(x[r][2 * pair + 1]);
        for (int s = 0; s < S; ++s) sums[r][s] = _mm512_fmadd_ps(second, odd[s], sums[r][s]);
      }
      for (int r = 0; r < R; ++r) {
        const __m512 first = _mm512_set1_ps(x[r][2 * pair]);
        for (int s = 0; s < S; ++s) sums[r][s] = _mm512_fmadd_ps(first, even[s], sums[r][s]);
      }
    }
  }
  for (int s = 0; s < S; ++s) {
    const __mmask16 mask = first_lanes(t.columns - s * 16);
    for (int r = 0; r < R; ++r) {
      _mm512_mask_storeu_ps(t.y + r * t.ldy + s * 16, mask, sums[r][s]);
    }
  }
}

// Subnormal operands and results of FMAs are zero while this lives.
class FlushSubnormals {
 public:
  FlushSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040U); }  // FTZ, DAZ
  ~FlushSubnormals() { _mm_setcsr(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  unsigned before_;
};

template <int S>
inline void rows_of_strips(const Bf16Block& b, std::int64_t strip) {
  std::int64_t row = b.row;
  const std::int64_t end = b.row + b.rows;
  if (b.bias == nullptr) {  // a bias is added without flushing
    const FlushSubnormals flush;
    const auto block = [&](std::int64_t first) {
      return Widened{b.x + first / 16 * b.x_stride + first % 16 * 32,
                     b.w + strip * b.strip_stride,
                     b.strip_stride,
                     b.chunks,
                     b.accumulate,
                     b.y + first * b.ldy + strip * 16,
                     b.ldy,
                     b.columns - strip * 16};
    };
    for (; row + 8 <= end; row += 8) widened_tile<8, S>(block(row));
    if (row + 4 <= end) {
      widened_tile<4, S>(block(row));
      row += 4;
    }
  }
  for (; row + 8 <= end; row += 8) tile<8, S>(b, row, strip);
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
  for (; strip + 3 <= b.strips; strip += 3) rows_of_strips<3>(b, strip);
  for (; strip < b.strips; ++strip) rows_of_strips<1>(b, strip);
}

// R rows of dw (in one block of 16) by all column tiles.
template <int R>
inline void gradient_rows(const Bf16Gradient& g, std::int64_t o) {
  const std::int64_t in_tiles = (g.in + 15) / 16;
  Widened t{g.dy + o / 16 * g.stride + o % 16 * 32,
            g.x,
            g.stride,
            g.chunks,
            true,
            g.dw + o * g.lddw,
            g.lddw,
            g.in};
  std::int64_t at = 0;
  const auto advance = [&](std::int64_t tiles) {
    at += tiles;
    t.w += tiles * g.stride;
    t.y += tiles * 16;
    t.columns -= tiles * 16;
  };
  while (at + 3 <= in_tiles) {
    widened_tile<R, 3>(t);
    advance(3);
  }
  while (at < in_tiles) {
    widened_tile<R, 1>(t);
    advance(1);
  }
}

void gradient_avx512(const Bf16Gradient& g) {
  const FlushSubnormals flush;
  std::int64_t o = g.out_begin;
  for (; o + 8 <= g.out_end; o += 8) gradient_rows<8>(g, o);
  for (; o < g.out_end; ++o) gradient_rows<1>(g, o);
}

}  // namespace

const Bf16Kernels kBf16KernelsAvx512 = {convert_avx512,  product_avx512, convert_gradient_avx512,
                                        gradient_avx512, pack_avx512,    dequantize_avx512,
                                        nullptr};

}  // namespace weft::nn
