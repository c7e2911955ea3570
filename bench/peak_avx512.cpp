#include <immintrin.h>

#include "bench/peak.h"

namespace weft::bench {
namespace {
constexpr int kSums = 12;  // independent, to fill two units of latency 4 to 6
}

double peak_bf16_avx512(std::int64_t rounds, float* sink) {
  __m512 sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const auto a = (__m512bh)_mm512_set1_epi16(0x3f80);  // 1.0
  const auto b = (__m512bh)_mm512_set1_epi16(0x3a00);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, b);
  }
  for (int i = 0; i < kSums; ++i) sink[i] += _mm512_cvtss_f32(sums[i]);
  return static_cast<double>(rounds) * kSums * 32 * 2;
}

double peak_int8_avx512(std::int64_t rounds, float* sink) {
  __m512i sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_set1_epi32(i);
  const __m512i a = _mm512_set1_epi8(1);
  const __m512i b = _mm512_set1_epi8(-1);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
  }
  for (int i = 0; i < kSums; ++i) {
    sink[i] += static_cast<float>(_mm_cvtsi128_si32(_mm512_castsi512_si128(sums[i])));
  }
  return static_cast<double>(rounds) * kSums * 64 * 2;
}

}  // namespace weft::bench
