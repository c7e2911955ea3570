// f32 to bf16 the way the products see it, in plain C++.
#pragma once

#include <cstdint>

namespace weft::nn {
namespace {

// Rounds to nearest even; subnormals become zero of their sign, NaN stays NaN.
// The same as VCVTNEPS2BF16.
inline std::uint16_t to_bf16(float f) {
  const std::uint32_t u = __builtin_bit_cast(std::uint32_t, f);
  const std::uint32_t magnitude = u & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>((u >> 16) | 0x40U);
  if (magnitude < 0x00800000U) return static_cast<std::uint16_t>((u >> 16) & 0x8000U);
  return static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
}
inline float from_bf16(std::uint16_t h) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(h) << 16);
}

}  // namespace
}  // namespace weft::nn
