// f32 to bf16 tiles with AVX-512 BF16. Included by the avx512 and amx files.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace weft::nn {
namespace {

inline __mmask16 first_lanes(std::int64_t n) {
  return n >= 16  ? static_cast<__mmask16>(0xffff)
         : n <= 0 ? static_cast<__mmask16>(0)
                  : static_cast<__mmask16>((1U << n) - 1U);
}

// 32 floats to bf16; lanes from n on are zero.
inline __m512i round_32(const float* p, std::int64_t n) {
  if (n >= 32) return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(p + 16), _mm512_loadu_ps(p));
  const __m512 low = _mm512_maskz_loadu_ps(first_lanes(n), p);
  const __m512 high =
      n > 16 ? _mm512_maskz_loadu_ps(first_lanes(n - 16), p + 16) : _mm512_setzero_ps();
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

inline void convert_avx512(const float* x, std::int64_t ldx, std::int64_t k, std::int64_t begin,
                           std::int64_t end, std::uint16_t* to) {
  const std::int64_t chunks = (k + 31) / 32;
  for (std::int64_t row = begin; row < end; ++row) {
    std::uint16_t* out = to + row / 16 * chunks * 512 + row % 16 * 32;
    const float* in = x + row * ldx;
    for (std::int64_t i = 0; i < k; i += 32, out += 512) {
      _mm512_store_si512(out, round_32(in + i, k - i));
    }
  }
}

// Sixteen vectors of 16 dwords, transposed in place.
inline void transpose_dwords(__m512i* v) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    v[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    v[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

// Interleaves the low and the high 16 words: pairs (low[i], high[i]).
inline __m512i interleave_halves(__m512i v) {
  alignas(64) static const std::uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), v);
}

inline void convert_gradient_avx512(const float* x, std::int64_t ldx, std::int64_t rows,
                                    std::int64_t columns, bool as_dy, std::uint16_t* to,
                                    std::int64_t stride) {
  for (std::int64_t tile = 0; tile * 16 < columns; ++tile, to += stride) {
    const __mmask16 mask = first_lanes(columns - tile * 16);
    const float* in = x + tile * 16;
    __m512i v[16];
    for (std::int64_t pair = 0; pair < 16; ++pair) {
      const std::int64_t r = 2 * pair;
      const __m512 even =
          r < rows ? _mm512_maskz_loadu_ps(mask, in + r * ldx) : _mm512_setzero_ps();
      const __m512 odd =
          r + 1 < rows ? _mm512_maskz_loadu_ps(mask, in + (r + 1) * ldx) : _mm512_setzero_ps();
      v[pair] = interleave_halves((__m512i)_mm512_cvtne2ps_pbh(odd, even));
    }
    if (as_dy) transpose_dwords(v);
    for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * 32, v[i]);
  }
}

// 32 rows by 32 columns at a time: the transposed tiles pair rows, the forward
// ones pair columns. Whole lines go past the caches: a packed model is larger than they
// are, and is next read long after.
inline void pack_avx512(const float* w, std::int64_t ldw, std::int64_t rows, std::int64_t columns,
                        std::uint16_t* forward, std::int64_t forward_stride,
                        std::uint16_t* transposed, std::int64_t transposed_stride) {
  for (std::int64_t column = 0; column < columns; column += 32) {
    const std::int64_t width = columns - column;
    if (forward != nullptr) {
      for (std::int64_t strip = 0; strip * 16 < rows; ++strip) {
        __m512i v[16];
        for (std::int64_t r = 0; r < 16; ++r) {
          const std::int64_t row = strip * 16 + r;
          v[r] = row < rows ? round_32(w + row * ldw + column, width) : _mm512_setzero_si512();
        }
        transpose_dwords(v);
        std::uint16_t* to = forward + strip * forward_stride + column / 32 * 512;
        for (int i = 0; i < 16; ++i)
          _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i * 32), v[i]);
      }
    }
    if (transposed == nullptr) continue;
    for (std::int64_t half = 0; half < 2 && half * 16 < width; ++half) {
      std::uint16_t* to = transposed + (column / 16 + half) * transposed_stride;
      const __mmask16 mask = first_lanes(width - half * 16);
      const float* in = w + column + half * 16;
      for (std::int64_t r = 0; r < 32; r += 2) {
        const __m512 even =
            r < rows ? _mm512_maskz_loadu_ps(mask, in + r * ldw) : _mm512_setzero_ps();
        const __m512 odd =
            r + 1 < rows ? _mm512_maskz_loadu_ps(mask, in + (r + 1) * ldw) : _mm512_setzero_ps();
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to + r * 16),
                            interleave_halves((__m512i)_mm512_cvtne2ps_pbh(odd, even)));
      }
    }
  }
  _mm_sfence();
}

}  // namespace
}  // namespace weft::nn
