#include <immintrin.h>

#include "bench/machine/peak.h"

namespace weft::bench {

float spin_fma_avx2(std::int64_t n) {
  __m256 a[10];
  for (auto& x : a) x = _mm256_setzero_ps();
  const __m256 b = _mm256_set1_ps(0.5F), c = _mm256_set1_ps(1.0F);
  for (std::int64_t i = 0; i < n; ++i) {
    for (auto& x : a) x = _mm256_fmadd_ps(x, b, c);
    __asm__ volatile("");
  }
  float sum = 0.0F;
  for (auto& x : a) sum += _mm256_cvtss_f32(x);
  return sum;
}

std::int64_t sum_bytes_avx2(const void* data, std::int64_t bytes) {
  const auto* p = static_cast<const __m256i*>(data);
  __m256i sums[4] = {};
  for (std::int64_t i = 0; i < bytes / 128; ++i, p += 4) {
    for (int j = 0; j < 4; ++j) sums[j] = _mm256_xor_si256(sums[j], _mm256_loadu_si256(p + j));
  }
  return _mm256_extract_epi64(
      _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3])), 0);
}

}  // namespace weft::bench
