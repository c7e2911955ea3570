// int8 products by VPDPBUSD: a lane is one output; a block of 32 columns is eight
// instructions of four columns each, exact in 32 bits.
#include <immintrin.h>

#include "weft/nn/cpu/dequantize_avx512.h"
#include "weft/nn/cpu/int8_kernels.h"

namespace weft::nn {
namespace {

// Lanes i and i + 8, i and i + 4, i and i + 2, 0 and 1.
inline float tree_sum(__m512 x) {
  const __m256 e = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 f = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
  const __m128 g = _mm_add_ps(f, _mm_movehl_ps(f, f));
  return _mm_cvtss_f32(_mm_add_ss(g, _mm_shuffle_ps(g, g, 1)));
}

void quantize_avx512(const float* x, std::int64_t n, std::int8_t* q, float* scale,
                     std::int32_t* sums) {
  for (std::int64_t block = 0; block * 32 < n; ++block, x += 32, q += 32, sums += 2) {
    const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
    constexpr int kNotFinite = 0x01 | 0x80 | 0x08 | 0x10;  // both NaNs, both infinities
    const bool finite =
        (_mm512_fpclass_ps_mask(low, kNotFinite) | _mm512_fpclass_ps_mask(high, kNotFinite)) == 0;
    const float top = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
    const float inverse = finite && top >= 1.0e-36F ? 127.0F / top : 0.0F;
    const __m512 factor = _mm512_set1_ps(inverse);
    __m512 r = _mm512_mul_ps(low, factor), t = _mm512_mul_ps(high, factor);
    if (!finite) r = t = _mm512_setzero_ps();
    const __m512i a = _mm512_cvtps_epi32(r), b = _mm512_cvtps_epi32(t);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(a));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(b));
    sums[0] = _mm512_reduce_add_epi32(a);
    sums[1] = _mm512_reduce_add_epi32(b);
    // Pairs of words: a in the low, b in the high halves.
    const __m512i words = _mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16));
    const int squares = _mm512_reduce_add_epi32(_mm512_madd_epi16(words, words));
    const float fit = tree_sum(
        _mm512_fmadd_ps(t, _mm512_cvtepi32_ps(b), _mm512_mul_ps(r, _mm512_cvtepi32_ps(a))));
    scale[block] = !finite        ? __builtin_nanf("")
                   : squares == 0 ? 0.0F
                                  : top / 127.0F * (fit / static_cast<float>(squares));
  }
}

inline __m512i splat_group(const std::int8_t* x) {
  int four;
  __builtin_memcpy(&four, x, sizeof four);
  return _mm512_set1_epi32(four);
}

template <int R, bool kNibbles, bool kShifted, bool kHalves>
inline void int8_rows(const Int8Block& b, const std::byte* strip, std::int64_t row, __m512* sums) {
  const QuantFormat f = b.format;
  const std::byte* header = strip;
  const std::byte* tile = strip + f.header_bytes;
  std::int64_t in_group = 0;
  const __m512i low_bits = _mm512_set1_epi8(15);
  for (int r = 0; r < R; ++r) sums[r] = _mm512_setzero_ps();
  for (std::int64_t block = 0; block < b.blocks; ++block) {
    fetch_ahead(tile, f.tile_bytes);
    __m512i values[8];
    for (int g = 0; g < (kNibbles ? 4 : 8); ++g) {
      const __m512i v = _mm512_loadu_si512(tile + g * 64);
      if constexpr (kNibbles) {
        values[g] = _mm512_and_si512(v, low_bits);
        values[g + 4] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low_bits);
      } else {
        values[g] = v;
      }
    }
    alignas(64) float scale[32], offset[16];
    tile_scales(f, header, tile + f.value_bytes, scale, offset);
    const __m512 scale_low = _mm512_load_ps(scale);
    for (int r = 0; r < R; ++r) {
      const std::int64_t at = (row + r) * b.blocks + block;
      const std::int8_t* x = b.q + at * 32;
      __m512i first = _mm512_setzero_si512(), second = first;
      for (int g = 0; g < 4; ++g) {
        first = _mm512_dpbusd_epi32(first, values[g], splat_group(x + g * 4));
        second = _mm512_dpbusd_epi32(second, values[g + 4], splat_group(x + g * 4 + 16));
      }
      const std::int32_t x_first = b.sums[at * 2], x_second = b.sums[at * 2 + 1];
      const __m512 x_scale = _mm512_set1_ps(b.scale[at]);
      if constexpr (kHalves) {
        first = _mm512_sub_epi32(first, _mm512_set1_epi32(f.bias * x_first));
        second = _mm512_sub_epi32(second, _mm512_set1_epi32(f.bias * x_second));
        sums[r] =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(first), _mm512_mul_ps(scale_low, x_scale), sums[r]);
        sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(second),
                                  _mm512_mul_ps(_mm512_load_ps(scale + 16), x_scale), sums[r]);
      } else {
        const __m512i both = _mm512_sub_epi32(_mm512_add_epi32(first, second),
                                              _mm512_set1_epi32(f.bias * (x_first + x_second)));
        sums[r] =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(both), _mm512_mul_ps(scale_low, x_scale), sums[r]);
      }
      if constexpr (kShifted) {
        sums[r] = _mm512_fmadd_ps(_mm512_load_ps(offset), _mm512_set1_ps(b.totals[at]), sums[r]);
      }
    }
    tile += f.tile_bytes;
    if (++in_group == f.group_tiles) {
      in_group = 0;
      header = tile;
      tile += f.header_bytes;
    }
  }
}

template <int R, bool kNibbles, bool kShifted, bool kHalves>
inline void int8_tile(const Int8Block& b, std::int64_t s, std::int64_t row) {
  __m512 sums[R];
  int8_rows<R, kNibbles, kShifted, kHalves>(b, b.w + s * b.strip_bytes, row, sums);
  const __mmask16 mask = first_lanes(b.columns - s * 16);
  for (int r = 0; r < R; ++r) {
    __m512 v = sums[r];
    if (b.bias != nullptr) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, b.bias + s * 16));
    _mm512_mask_storeu_ps(b.y + (row + r) * b.ldy + s * 16, mask, v);
  }
}

template <bool kNibbles, bool kShifted, bool kHalves>
void int8_strips(const Int8Block& b) {
  for (std::int64_t s = 0; s < b.strips; ++s) {
    std::int64_t row = 0;
    for (; row + 8 <= b.rows; row += 8) int8_tile<8, kNibbles, kShifted, kHalves>(b, s, row);
    for (; row + 4 <= b.rows; row += 4) int8_tile<4, kNibbles, kShifted, kHalves>(b, s, row);
    for (; row < b.rows; ++row) int8_tile<1, kNibbles, kShifted, kHalves>(b, s, row);
  }
}

void product_int8_avx512(const Int8Block& b) {
  switch (b.format.kind) {
    case QuantKind::kScale:
      b.format.nibbles ? int8_strips<true, false, false>(b) : int8_strips<false, false, false>(b);
      break;
    case QuantKind::kScaleOffset:
      int8_strips<true, true, false>(b);
      break;
    case QuantKind::kScales:
      b.format.nibbles ? int8_strips<true, true, false>(b) : int8_strips<false, true, false>(b);
      break;
    case QuantKind::kHalfScales:
      int8_strips<false, false, true>(b);
      break;
  }
}

}  // namespace

const Int8Kernels kInt8KernelsAvx512 = {quantize_avx512, product_int8_avx512};

}  // namespace weft::nn
