// The scales of a quantised tile in plain C++, for files of any level.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/nn/cpu/quant_tiles.h"

namespace weft::nn {
namespace {

inline float from_half(const std::byte* p) {
  std::uint16_t h;
  __builtin_memcpy(&h, p, sizeof h);
  const std::uint32_t sign = (h & 0x8000U) << 16, magnitude = h & 0x7fffU;
  if (magnitude >= 0x7c00U) {  // infinity, NaN
    return __builtin_bit_cast(float, sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
  }
  // Exact: the exponent bias differs by 112.
  const float value = __builtin_bit_cast(float, magnitude << 13) * 5.192296858534828e+33F;
  return sign != 0 ? -value : value;
}

// scale[32] (its second half a copy, but for kHalfScales) and signed offset[16].
inline void scales_lanes(const QuantFormat& f, const std::byte* header, const std::byte* s,
                         float* scale, float* offset) {
  for (int r = 0; r < 16; ++r) {
    offset[r] = 0.0F;
    switch (f.kind) {
      case QuantKind::kScaleOffset:
        offset[r] = from_half(s + 32 + 2 * r);
        [[fallthrough]];
      case QuantKind::kScale:
        scale[r] = scale[16 + r] = from_half(s + 2 * r);
        break;
      case QuantKind::kScales:
        scale[r] = scale[16 + r] =
            from_half(header + 2 * r) * static_cast<float>(static_cast<int>(s[r]));
        offset[r] =
            -(from_half(header + 32 + 2 * r) * static_cast<float>(static_cast<int>(s[16 + r])));
        break;
      case QuantKind::kHalfScales: {
        const float d = from_half(header + 2 * r);
        scale[r] = d * static_cast<float>(static_cast<std::int8_t>(s[r]));
        scale[16 + r] = d * static_cast<float>(static_cast<std::int8_t>(s[16 + r]));
        break;
      }
    }
  }
}

}  // namespace
}  // namespace weft::nn
