// Sixteen float lanes in plain C++. Included by one .cpp each of the scalar
// level; lanes_avx2.h and lanes_avx512.h define the same names, and every
// operation is exact IEEE arithmetic, so code written on lanes gives the same
// bits at every level. Everything is in an anonymous namespace: code compiled
// for one level must not be linked into another.
#pragma once

#include <cstdint>

namespace weft::nn {
namespace {

struct Lanes {
  float v[16];
};
constexpr int kQueryRows = 1, kValueRows = 1, kValueVectors = 1;  // attention register tiles
constexpr int kProductRows = 2, kProductStrips = 1;               // f32 matrix product tiles

#define WEFT_EACH_LANE for (int i = 0; i < 16; ++i)

inline Lanes load(const float* p) {
  Lanes r;
  WEFT_EACH_LANE r.v[i] = p[i];
  return r;
}
inline void store(float* p, const Lanes& a) { WEFT_EACH_LANE p[i] = a.v[i]; }
inline Lanes splat(float x) {
  Lanes r;
  WEFT_EACH_LANE r.v[i] = x;
  return r;
}
inline Lanes add(const Lanes& a, const Lanes& b) {
  Lanes r;
  WEFT_EACH_LANE r.v[i] = a.v[i] + b.v[i];
  return r;
}
inline Lanes sub(const Lanes& a, const Lanes& b) {
  Lanes r;
  WEFT_EACH_LANE r.v[i] = a.v[i] - b.v[i];
  return r;
}
inline Lanes mul(const Lanes& a, const Lanes& b) {
  Lanes r;
  WEFT_EACH_LANE r.v[i] = a.v[i] * b.v[i];
  return r;
}
inline Lanes div(const Lanes& a, const Lanes& b) {
  Lanes r;
  WEFT_EACH_LANE r.v[i] = a.v[i] / b.v[i];
  return r;
}
// a * b + c, rounded once.
inline Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  Lanes r;
  WEFT_EACH_LANE r.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return r;
}
// a > b ? a : b, so a NaN in either gives b (as MAXPS does).
inline Lanes max(const Lanes& a, const Lanes& b) {
  Lanes r;
  WEFT_EACH_LANE r.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return r;
}
inline Lanes min(const Lanes& a, const Lanes& b) {
  Lanes r;
  WEFT_EACH_LANE r.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return r;
}
// a > b ? x : y, lane by lane.
inline Lanes select_greater(const Lanes& a, const Lanes& b, const Lanes& x, const Lanes& y) {
  Lanes r;
  WEFT_EACH_LANE r.v[i] = a.v[i] > b.v[i] ? x.v[i] : y.v[i];
  return r;
}
// Lanes [first, last] of a, `other` elsewhere.
inline Lanes keep_range(const Lanes& a, int first, int last, float other) {
  Lanes r;
  WEFT_EACH_LANE r.v[i] = i >= first && i <= last ? a.v[i] : other;
  return r;
}
// 2^n of lanes that hold 1.5 * 2^23 + n, n in [-126, 127].
inline Lanes power_of_two(const Lanes& magic) {
  Lanes r;
  WEFT_EACH_LANE {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, magic.v[i]);
    r.v[i] = __builtin_bit_cast(float, (bits << 23) + 0x3f800000U);
  }
  return r;
}
// p * 2^n of an integral n in [-150, 129]: two factors, so that the result may be
// subnormal (rounded by the second product alone) or overflow.
inline Lanes times_power_of_two(const Lanes& p, const Lanes& n) {
  const Lanes magic = splat(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
  const Lanes half = fma(n, splat(0.5F), magic);
  const Lanes rest = add(sub(n, sub(half, magic)), magic);
  return mul(mul(p, power_of_two(half)), power_of_two(rest));
}
// |a|
inline Lanes absolute(const Lanes& a) {
  Lanes r;
  WEFT_EACH_LANE r.v[i] = __builtin_fabsf(a.v[i]);
  return r;
}
// The fixed tree: lane i with i + 8, then + 4, + 2, + 1.
inline float sum(const Lanes& a) {
  float t[8];
  for (int i = 0; i < 8; ++i) t[i] = a.v[i] + a.v[i + 8];
  for (int i = 0; i < 4; ++i) t[i] = t[i] + t[i + 4];
  for (int i = 0; i < 2; ++i) t[i] = t[i] + t[i + 2];
  return t[0] + t[1];
}
inline float largest(const Lanes& a) {
  float t[8];
  for (int i = 0; i < 8; ++i) t[i] = a.v[i] > a.v[i + 8] ? a.v[i] : a.v[i + 8];
  for (int i = 0; i < 4; ++i) t[i] = t[i] > t[i + 4] ? t[i] : t[i + 4];
  for (int i = 0; i < 2; ++i) t[i] = t[i] > t[i + 2] ? t[i] : t[i + 2];
  return t[0] > t[1] ? t[0] : t[1];
}

// Sixteen pairs of bf16 as two vectors, and one pair spread over all lanes.
inline void load_pairs(const std::uint16_t* p, Lanes& even, Lanes& odd) {
  WEFT_EACH_LANE {
    even.v[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(p[2 * i]) << 16);
    odd.v[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(p[2 * i + 1]) << 16);
  }
}
inline void splat_pair(const std::uint16_t* p, Lanes& even, Lanes& odd) {
  even = splat(__builtin_bit_cast(float, static_cast<std::uint32_t>(p[0]) << 16));
  odd = splat(__builtin_bit_cast(float, static_cast<std::uint32_t>(p[1]) << 16));
}

#undef WEFT_EACH_LANE

}  // namespace
}  // namespace weft::nn
