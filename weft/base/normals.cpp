// Box-Muller as in rng.cpp, over lanes: the same additions, products, divisions and
// roots in the same order for each draw, so the bits do not depend on the width of the
// vectors. The limit is the nine divisions of a draw: 24 cycles for eight lanes.
#include "weft/base/normals.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace weft {
namespace {

constexpr int kLanes = 16;

// The choice runs before the thread sanitizer is there.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define WEFT_EVERY_LEVEL __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WEFT_EVERY_LEVEL
#endif

// log_unit() and cos_turns() of rng.cpp, for u in (0, 1] and turn in [0, 1).
WEFT_EVERY_LEVEL void normals(const double* u, const double* turn, float* out) {
  double series[kLanes], z[kLanes], exponent[kLanes], cosine[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    // frexp: u is a multiple of 2^-32 above 0, so never subnormal.
    const auto word = std::bit_cast<std::uint64_t>(u[i]);
    const double half = std::bit_cast<double>((word & 0x000fffffffffffffU) | 0x3fe0000000000000U);
    // The exponent as a double without a conversion of integers: 2^52 + e - 2^52.
    const double e =
        std::bit_cast<double>((word >> 52) | 0x4330000000000000U) - (4503599627370496.0 + 1022.0);
    const bool low = half < 0.70710678118654752440;
    const double m = low ? half * 2 : half;
    exponent[i] = low ? e - 1 : e;
    z[i] = (m - 1) / (m + 1);
    series[i] = 0;
  }
  for (int k = 19; k >= 1; k -= 2) {
    const double inverse = 1.0 / k;
    for (int i = 0; i < kLanes; ++i) series[i] = series[i] * (z[i] * z[i]) + inverse;
  }
  double x[kLanes], x2[kLanes], swap[kLanes], sign[kLanes], term[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    double t = turn[i];
    t = t > 0.5 ? 1 - t : t;
    sign[i] = t > 0.25 ? -1.0 : 1.0;
    t = t > 0.25 ? 0.5 - t : t;
    swap[i] = t > 0.125 ? 1.0 : -1.0;
    x[i] = 6.28318530717958647693 * (t > 0.125 ? 0.25 - t : t);
    x2[i] = x[i] * x[i];
    term[i] = 0;
  }
  for (int k = 16; k >= 2; k -= 2) {
    for (int i = 0; i < kLanes; ++i) {
      const double d = k * (k + swap[i]);
      term[i] = -x2[i] / d * (1 + term[i]);
    }
  }
  for (int i = 0; i < kLanes; ++i) {
    cosine[i] = sign[i] * ((swap[i] > 0 ? x[i] : 1.0) * (1 + term[i]));
    const double log = exponent[i] * 0.693147180559945309417 + 2 * z[i] * series[i];
    out[i] = static_cast<float>(std::sqrt(-2 * log) * cosine[i]);
  }
}

}  // namespace

void fill_normals(const Rng& rng, std::span<float> out) {
  double u[kLanes], turn[kLanes];
  float draws[kLanes];
  for (std::size_t at = 0; at < out.size(); at += kLanes) {
    for (std::size_t i = 0; i < kLanes; i += 2) {  // a block of four words is two draws
      const auto words = rng.block((at + i) / 2);
      for (std::size_t half = 0; half < 2; ++half) {
        u[i + half] = 1.0 - static_cast<double>(words[2 * half]) * 0x1p-32;
        turn[i + half] = static_cast<double>(words[2 * half + 1]) * 0x1p-32;
      }
    }
    normals(u, turn, draws);
    std::copy_n(draws, std::min<std::size_t>(kLanes, out.size() - at), out.data() + at);
  }
}

}  // namespace weft
