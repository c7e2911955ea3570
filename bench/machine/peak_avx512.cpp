#include <immintrin.h>

#include "bench/machine/peak.h"

namespace weft::bench {

float spin_fma_avx512(std::int64_t n) {
  __m512 a[16];
  for (auto& x : a) x = _mm512_setzero_ps();
  const __m512 b = _mm512_set1_ps(0.5F), c = _mm512_set1_ps(1.0F);
  for (std::int64_t i = 0; i < n; ++i) {
    for (auto& x : a) x = _mm512_fmadd_ps(x, b, c);
    __asm__ volatile("");
  }
  float sum = 0.0F;
  for (auto& x : a) sum += _mm512_cvtss_f32(x);
  return sum;
}

float spin_dpbf16_avx512(std::int64_t n) {
  __m512 a[16];
  for (auto& x : a) x = _mm512_setzero_ps();
  const __m512bh b = (__m512bh)_mm512_set1_epi32(0x3f003f00);
  for (std::int64_t i = 0; i < n; ++i) {
    for (auto& x : a) x = _mm512_dpbf16_ps(x, b, b);
    __asm__ volatile("");
  }
  float sum = 0.0F;
  for (auto& x : a) sum += _mm512_cvtss_f32(x);
  return sum;
}

std::int32_t spin_dpbusd_avx512(std::int64_t n) {
  __m512i a[16];
  for (auto& x : a) x = _mm512_setzero_si512();
  const __m512i b = _mm512_set1_epi8(1);
  for (std::int64_t i = 0; i < n; ++i) {
    for (auto& x : a) x = _mm512_dpbusd_epi32(x, b, b);
    __asm__ volatile("");
  }
  std::int32_t sum = 0;
  for (auto& x : a) sum ^= _mm_cvtsi128_si32(_mm512_castsi512_si128(x));
  return sum;
}

std::int64_t sum_bytes_avx512(const void* data, std::int64_t bytes) {
  const auto* p = static_cast<const char*>(data);
  __m512i sums[8] = {};
  for (std::int64_t i = 0; i < bytes / 512; ++i, p += 512) {
    for (int j = 0; j < 8; ++j) {
      sums[j] = _mm512_xor_si512(sums[j], _mm512_loadu_si512(p + 64 * j));
    }
  }
  for (int j = 1; j < 8; ++j) sums[0] = _mm512_xor_si512(sums[0], sums[j]);
  return _mm512_reduce_add_epi64(sums[0]);
}

}  // namespace weft::bench
