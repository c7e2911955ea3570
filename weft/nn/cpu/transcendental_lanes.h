// exp on lanes. Included after one lanes_*.h; the order of operations is the
// contract (docs/numerics.md), the same as exp_f32 in ops.cpp.
#pragma once

namespace weft::nn {
namespace {

constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer

// e^x. Cody and Waite reduction to |r| <= ln(2)/2 and the degree-7 polynomial of
// Moshier's Cephes library (expf). NaN gives NaN; below -104 exactly 0.
inline Lanes exp(Lanes x) {
  x = max(splat(-104.0F), x);
  x = min(splat(89.0F), x);
  const Lanes magic = splat(kMagic);
  const Lanes n = sub(fma(x, splat(1.44269504F), magic), magic);
  Lanes r = fma(n, splat(-0.693359375F), x);
  r = fma(n, splat(2.12194440e-4F), r);
  Lanes p = splat(1.9875691500e-4F);
  p = fma(p, r, splat(1.3981999507e-3F));
  p = fma(p, r, splat(8.3334519073e-3F));
  p = fma(p, r, splat(4.1665795894e-2F));
  p = fma(p, r, splat(1.6666665459e-1F));
  p = fma(p, r, splat(5.0000001201e-1F));
  p = fma(p, mul(r, r), r);
  p = add(p, splat(1.0F));
  return times_power_of_two(p, n);
}

// The first `n` (< 16) values of p, `other` in the lanes beyond.
inline Lanes load_part(const float* p, std::int64_t n, float other) {
  float t[16];
  for (std::int64_t i = 0; i < 16; ++i) t[i] = i < n ? p[i] : other;
  return load(t);
}
inline void store_part(float* p, std::int64_t n, Lanes x) {
  float t[16];
  store(t, x);
  for (std::int64_t i = 0; i < n; ++i) p[i] = t[i];
}

}  // namespace
}  // namespace weft::nn
