// The loops of codec_loops.h in plain C++ that compilers vectorise: the including file sets
// WEFT_CODEC_NAMESPACE.
#pragma once

#include <bit>
#include <cstring>
#include <limits>

#include "weft/comm/codec_loops.h"

namespace weft::comm::WEFT_CODEC_NAMESPACE {

constexpr std::uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;

inline std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

// Bits of the largest |x|: integers order as magnitudes do.
inline std::uint32_t largest(const float* x, std::size_t n) {
  std::uint32_t top = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t u = bits(x[i]) & kMagnitude;
    top = top > u ? top : u;
  }
  return top;
}

// Fills a block that has no scale: all zero, or not finite.
inline float without_scale(std::uint32_t top, std::size_t n, std::uint8_t* to) {
  std::memset(to, 0, n);
  return top == 0 ? 0.0F : std::numeric_limits<float>::quiet_NaN();
}

// Blocks whose largest magnitude is below 2^-118 are zero: 448 over it must be finite.
constexpr std::uint32_t kLeast = 0x04800000;

inline float to_int8(const float* x, std::size_t n, std::uint8_t* to) {
  const std::uint32_t top = largest(x, n);
  if (top >= kInfinity || top < kLeast) return without_scale(top < kLeast ? 0 : top, n, to);
  const float most = std::bit_cast<float>(top), inverse = 127.0F / most;
  for (std::size_t i = 0; i < n; ++i) {
    // Adding 1.5 * 2^23 rounds to an integer, to even.
    const float shifted = x[i] * inverse + 12582912.0F;
    to[i] = static_cast<std::uint8_t>(bits(shifted));
  }
  return most / 127.0F;
}

inline void from_int8(const std::uint8_t* from, std::size_t n, float scale, float* x) {
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>(static_cast<std::int8_t>(from[i])) * scale;
  }
}

// E4M3: sign, 4 bits of exponent (bias 7), 3 of mantissa; subnormals count 2^-9.
inline float to_fp8(const float* x, std::size_t n, std::uint8_t* to) {
  const std::uint32_t top = largest(x, n);
  if (top >= kInfinity || top < kLeast) return without_scale(top < kLeast ? 0 : top, n, to);
  const float most = std::bit_cast<float>(top), inverse = 448.0F / most;
  for (std::size_t i = 0; i < n; ++i) {
    const float y = x[i] * inverse;
    const std::uint32_t u = bits(y) & kMagnitude, sign = bits(y) >> 31 << 7;
    // Normal numbers: round the mantissa to 3 bits, to even; the carry goes to the exponent.
    const std::uint32_t normal = ((u + 0x7ffff + (u >> 20 & 1)) >> 20) - (120U << 3);
    const float shifted = std::bit_cast<float>(u) * 512.0F + 12582912.0F;
    const std::uint32_t subnormal = bits(shifted) & 0xff;
    const std::uint32_t code = u < 0x3c800000 ? subnormal : normal;  // below 2^-6
    to[i] = static_cast<std::uint8_t>(sign | (code > 0x7e ? 0x7e : code));
  }
  return most / 448.0F;
}

inline void histogram(const float* x, std::size_t n, std::uint32_t* counts) {
  // Four tables, so that equal neighbours do not wait for each other.
  static thread_local std::uint32_t tables[4][4096];
  std::memset(tables, 0, sizeof tables);
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int t = 0; t < 4; ++t) ++tables[t][(bits(x[i + t]) & kMagnitude) >> 19];
  }
  for (; i < n; ++i) ++tables[0][(bits(x[i]) & kMagnitude) >> 19];
  for (int b = 0; b < 4096; ++b) {
    counts[b] += tables[0][b] + tables[1][b] + tables[2][b] + tables[3][b];
  }
}

inline bool reaches(const float* x, std::uint32_t least) { return largest(x, 32) >= least; }

inline void split_bytes(const float* x, std::size_t n, std::uint8_t* to) {
  for (std::size_t i = 0; i < n; ++i) {
    // The exponent in one byte, the sign behind the mantissa.
    const std::uint32_t u = std::rotl(bits(x[i]), 1);
    to[i] = static_cast<std::uint8_t>(u);
    to[n + i] = static_cast<std::uint8_t>(u >> 8);
    to[2 * n + i] = static_cast<std::uint8_t>(u >> 16);
    to[3 * n + i] = static_cast<std::uint8_t>(u >> 24);
  }
}

inline void join_bytes(const std::uint8_t* from, std::size_t n, float* x) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t u = from[i] | std::uint32_t{from[n + i]} << 8 |
                            std::uint32_t{from[2 * n + i]} << 16 |
                            std::uint32_t{from[3 * n + i]} << 24;
    x[i] = std::bit_cast<float>(std::rotr(u, 1));
  }
}

constexpr CodecLoops kLoops = {to_int8, to_fp8,      from_int8, histogram,
                               reaches, split_bytes, join_bytes};

}  // namespace weft::comm::WEFT_CODEC_NAMESPACE
