// Quantised tiles to bf16 with AVX-512. Included by the avx512 and amx files.
//
// A nibble has 16 possible values, so a block of 32 has 16 possible weights: they
// are computed once a block (one f32 vector), rounded to bf16, and looked up by
// VPERMW: 32 weights for a shift and a shuffle.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "weft/nn/cpu/bf16_convert_avx512.h"
#include "weft/nn/cpu/quant_tiles.h"

namespace weft::nn {
namespace {

inline __m512 halves_to_floats(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline __m512 bytes_to_floats(const std::byte* p, bool is_signed) {
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(is_signed ? _mm512_cvtepi8_epi32(b) : _mm512_cvtepu8_epi32(b));
}

// Asks for the tile that is some 100 ns ahead in the stream of weights: the
// hardware's own prefetcher stays too close for loops of this many instructions.
inline void fetch_ahead(const std::byte* tile, std::int64_t tile_bytes) {
  constexpr std::int64_t kAheadBytes = 4096;
  for (std::int64_t at = 0; at < tile_bytes; at += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(tile) + kAheadBytes + at, _MM_HINT_T0);
  }
}

// scale[32] (the second half for kHalfScales), offset[16].
inline void tile_scales(const QuantFormat& f, const std::byte* header, const std::byte* s,
                        float* scale, float* offset) {
  switch (f.kind) {
    case QuantKind::kScale:
      _mm512_store_ps(scale, halves_to_floats(s));
      break;
    case QuantKind::kScaleOffset:
      _mm512_store_ps(scale, halves_to_floats(s));
      _mm512_store_ps(offset, halves_to_floats(s + 32));
      break;
    case QuantKind::kScales:
      _mm512_store_ps(scale, _mm512_mul_ps(halves_to_floats(header), bytes_to_floats(s, false)));
      _mm512_store_ps(offset, _mm512_xor_ps(_mm512_set1_ps(-0.0F),
                                            _mm512_mul_ps(halves_to_floats(header + 32),
                                                          bytes_to_floats(s + 16, false))));
      break;
    case QuantKind::kHalfScales: {
      const __m512 d = halves_to_floats(header);
      _mm512_store_ps(scale, _mm512_mul_ps(d, bytes_to_floats(s, true)));
      _mm512_store_ps(scale + 16, _mm512_mul_ps(d, bytes_to_floats(s + 16, true)));
      break;
    }
  }
}

// Hands put(row, 32 bf16) the sixteen rows of a tile. Shifted: the kind has offsets.
template <bool kNibbles, bool kShifted, bool kHalves, class Put>
inline void tile_rows(const QuantFormat& f, const std::byte* header, const std::byte* tile,
                      const Put& put) {
  alignas(64) float scale[32], offset[16];
  tile_scales(f, header, tile + f.value_bytes, scale, offset);
  if constexpr (kNibbles) {
    const __m512 values =
        _mm512_sub_ps(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                      _mm512_set1_ps(static_cast<float>(f.bias)));
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      __m512 weights = _mm512_mul_ps(values, _mm512_set1_ps(scale[r]));
      if constexpr (kShifted) weights = _mm512_add_ps(weights, _mm512_set1_ps(offset[r]));
      // Both halves hold the table, so the bits above a nibble do not matter.
      const __m512i table = (__m512i)_mm512_cvtne2ps_pbh(weights, weights);
      const __m512i words = _mm512_srli_epi16(_mm512_loadu_si512(tile + r / 4 * 64), r % 4 * 4);
      put(r, _mm512_permutexvar_epi16(words, table));
    }
  } else {
#pragma GCC unroll 4
    for (int r = 0; r < 16; ++r) {
      __m512 low = bytes_to_floats(tile + r * 32, true);
      __m512 high = bytes_to_floats(tile + r * 32 + 16, true);
      const __m512 d = _mm512_set1_ps(scale[r]);
      low = _mm512_mul_ps(low, d);
      high = _mm512_mul_ps(high, kHalves ? _mm512_set1_ps(scale[16 + r]) : d);
      if constexpr (kShifted) {
        low = _mm512_add_ps(low, _mm512_set1_ps(offset[r]));
        high = _mm512_add_ps(high, _mm512_set1_ps(offset[r]));
      }
      put(r, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
  }
}

template <bool kNibbles, bool kShifted, bool kHalves>
inline void dequantize_tiles(const QuantFormat& f, const std::byte* strip, std::int64_t tiles,
                             std::uint16_t* to) {
  for (std::int64_t t = 0; t < tiles; ++t, to += 512) {
    __m512i rows[16];
    tile_rows<kNibbles, kShifted, kHalves>(f, strip + f.header_offset(t), strip + f.tile_offset(t),
                                           [&](int r, __m512i v) { rows[r] = v; });
    transpose_dwords(rows);
    for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * 32, rows[i]);
  }
}

inline void dequantize_avx512(const QuantFormat& f, const std::byte* strip, std::int64_t tiles,
                              std::uint16_t* to) {
  switch (f.kind) {
    case QuantKind::kScale:
      (f.nibbles ? dequantize_tiles<true, false, false>
                 : dequantize_tiles<false, false, false>)(f, strip, tiles, to);
      break;
    case QuantKind::kScaleOffset:
      dequantize_tiles<true, true, false>(f, strip, tiles, to);
      break;
    case QuantKind::kScales:
      (f.nibbles ? dequantize_tiles<true, true, false>
                 : dequantize_tiles<false, true, false>)(f, strip, tiles, to);
      break;
    case QuantKind::kHalfScales:
      dequantize_tiles<false, false, true>(f, strip, tiles, to);
      break;
  }
}

}  // namespace
}  // namespace weft::nn
