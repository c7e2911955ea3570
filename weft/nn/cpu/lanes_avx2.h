// Sixteen float lanes as two 8-lane registers; see lanes_scalar.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace weft::nn {
namespace {

struct Lanes {
  __m256 a, b;
};
constexpr int kQueryRows = 2, kValueRows = 2, kValueVectors = 2;
constexpr int kProductRows = 5, kProductStrips = 1;

inline Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Lanes x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline Lanes splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Lanes add(Lanes x, Lanes y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline Lanes sub(Lanes x, Lanes y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline Lanes mul(Lanes x, Lanes y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline Lanes div(Lanes x, Lanes y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline Lanes fma(Lanes x, Lanes y, Lanes z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline Lanes max(Lanes x, Lanes y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline Lanes min(Lanes x, Lanes y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline Lanes select_greater(Lanes p, Lanes q, Lanes x, Lanes y) {
  return {_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(p.a, q.a, _CMP_GT_OQ)),
          _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(p.b, q.b, _CMP_GT_OQ))};
}
inline Lanes keep_range(Lanes x, int first, int last, float other) {
  const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i high = _mm256_add_epi32(low, _mm256_set1_epi32(8));
  const __m256i before = _mm256_set1_epi32(first - 1), after = _mm256_set1_epi32(last + 1);
  const __m256i keep_low =
      _mm256_and_si256(_mm256_cmpgt_epi32(low, before), _mm256_cmpgt_epi32(after, low));
  const __m256i keep_high =
      _mm256_and_si256(_mm256_cmpgt_epi32(high, before), _mm256_cmpgt_epi32(after, high));
  const __m256 o = _mm256_set1_ps(other);
  return {_mm256_blendv_ps(o, x.a, _mm256_castsi256_ps(keep_low)),
          _mm256_blendv_ps(o, x.b, _mm256_castsi256_ps(keep_high))};
}
inline __m256 power_of_two(__m256 magic) {
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(magic), 23),
                                              _mm256_set1_epi32(0x3f800000)));
}
inline Lanes power_of_two(Lanes magic) { return {power_of_two(magic.a), power_of_two(magic.b)}; }
// p * 2^n of an integral n in [-150, 129]: two factors, so that the result may be
// subnormal (rounded by the second product alone) or overflow.
inline Lanes times_power_of_two(Lanes p, Lanes n) {
  const Lanes magic = splat(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
  const Lanes half = fma(n, splat(0.5F), magic);
  const Lanes rest = add(sub(n, sub(half, magic)), magic);
  return mul(mul(p, power_of_two(half)), power_of_two(rest));
}
inline Lanes absolute(Lanes x) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
inline float sum(Lanes x) {
  const __m256 e = _mm256_add_ps(x.a, x.b);
  const __m128 f = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
  const __m128 g = _mm_add_ps(f, _mm_movehl_ps(f, f));
  return _mm_cvtss_f32(_mm_add_ss(g, _mm_shuffle_ps(g, g, 1)));
}
inline float largest(Lanes x) {
  const __m256 e = _mm256_max_ps(x.a, x.b);
  const __m128 f = _mm_max_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
  const __m128 g = _mm_max_ps(f, _mm_movehl_ps(f, f));
  return _mm_cvtss_f32(_mm_max_ss(g, _mm_shuffle_ps(g, g, 1)));
}

inline void split_pairs(__m256i pairs, __m256& even, __m256& odd) {
  even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
  odd = _mm256_castsi256_ps(
      _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
}
inline void load_pairs(const std::uint16_t* p, Lanes& even, Lanes& odd) {
  split_pairs(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), even.a, odd.a);
  split_pairs(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16)), even.b, odd.b);
}
inline void splat_pair(const std::uint16_t* p, Lanes& even, Lanes& odd) {
  int pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  split_pairs(_mm256_set1_epi32(pair), even.a, odd.a);
  even.b = even.a;
  odd.b = odd.a;
}

}  // namespace
}  // namespace weft::nn
