#include <immintrin.h>

#include "bench/peak.h"

namespace weft::bench {

double peak_fma_avx2(std::int64_t rounds, float* sink) {
  // Ten independent sums: two units of latency 4 to 5 need that many.
  constexpr int kSums = 10;
  __m256 sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(0.999F);
  const __m256 b = _mm256_set1_ps(0.001F);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 10
    for (int i = 0; i < kSums; ++i) sums[i] = _mm256_fmadd_ps(sums[i], a, b);
  }
  for (int i = 0; i < kSums; ++i) sink[i] += _mm256_cvtss_f32(sums[i]);
  return static_cast<double>(rounds) * kSums * 8 * 2;
}

}  // namespace weft::bench
