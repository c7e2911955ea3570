// Sixteen float lanes as one 512-bit register; see lanes_scalar.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace weft::nn {
namespace {

struct Lanes {
  __m512 v;
};
constexpr int kQueryRows = 6, kValueRows = 6, kValueVectors = 4;
constexpr int kProductRows = 8, kProductStrips = 2;

inline Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, Lanes x) { _mm512_storeu_ps(p, x.v); }
inline Lanes splat(float x) { return {_mm512_set1_ps(x)}; }
inline Lanes add(Lanes x, Lanes y) { return {_mm512_add_ps(x.v, y.v)}; }
inline Lanes sub(Lanes x, Lanes y) { return {_mm512_sub_ps(x.v, y.v)}; }
inline Lanes mul(Lanes x, Lanes y) { return {_mm512_mul_ps(x.v, y.v)}; }
inline Lanes div(Lanes x, Lanes y) { return {_mm512_div_ps(x.v, y.v)}; }
inline Lanes fma(Lanes x, Lanes y, Lanes z) { return {_mm512_fmadd_ps(x.v, y.v, z.v)}; }
inline Lanes max(Lanes x, Lanes y) { return {_mm512_max_ps(x.v, y.v)}; }
inline Lanes min(Lanes x, Lanes y) { return {_mm512_min_ps(x.v, y.v)}; }
inline Lanes select_greater(Lanes p, Lanes q, Lanes x, Lanes y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(p.v, q.v, _CMP_GT_OQ), y.v, x.v)};
}
inline Lanes keep_range(Lanes x, int first, int last, float other) {
  const unsigned up_to = last >= 15 ? 0xffffU : last < 0 ? 0U : (2U << last) - 1U;
  const unsigned below = first <= 0 ? 0U : first > 15 ? 0xffffU : (1U << first) - 1U;
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(up_to & ~below), _mm512_set1_ps(other), x.v)};
}
// p * 2^n of an integral n: VSCALEFPS rounds once, as the other levels' two exact
// factors do.
inline Lanes times_power_of_two(Lanes p, Lanes n) { return {_mm512_scalef_ps(p.v, n.v)}; }
inline Lanes absolute(Lanes x) { return {_mm512_abs_ps(x.v)}; }
inline float sum(Lanes x) {
  const __m256 e = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 f = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
  const __m128 g = _mm_add_ps(f, _mm_movehl_ps(f, f));
  return _mm_cvtss_f32(_mm_add_ss(g, _mm_shuffle_ps(g, g, 1)));
}
inline float largest(Lanes x) {
  const __m256 e = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 f = _mm_max_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
  const __m128 g = _mm_max_ps(f, _mm_movehl_ps(f, f));
  return _mm_cvtss_f32(_mm_max_ss(g, _mm_shuffle_ps(g, g, 1)));
}

}  // namespace
}  // namespace weft::nn
