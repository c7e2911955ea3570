// int8 products in plain C++, for the levels without VNNI.
#pragma once

#include "weft/nn/cpu/int8_kernels.h"
#include "weft/nn/cpu/quant_scales.h"

namespace weft::nn {
namespace {

void product_int8_lanes(const Int8Block& b) {
  const QuantFormat f = b.format;
  const bool halves = f.kind == QuantKind::kHalfScales;
  const bool shifted = f.kind == QuantKind::kScaleOffset || f.kind == QuantKind::kScales;
  for (std::int64_t s = 0; s < b.strips; ++s) {
    const std::byte* strip = b.w + s * b.strip_bytes;
    for (std::int64_t row = 0; row < b.rows; ++row) {
      float sums[16] = {};
      for (std::int64_t block = 0; block < b.blocks; ++block) {
        const std::byte* tile = strip + f.tile_offset(block);
        const std::int8_t* x = b.q + (row * b.blocks + block) * 32;
        const std::int32_t* x_sums = b.sums + (row * b.blocks + block) * 2;
        const float x_scale = b.scale[row * b.blocks + block];
        float scale[32], offset[16];
        scales_lanes(f, strip + f.header_offset(block), tile + f.value_bytes, scale, offset);
        std::int32_t products[2][16] = {};
        for (int group = 0; group < 8; ++group) {
          const auto* values =
              reinterpret_cast<const std::uint8_t*>(tile + (f.nibbles ? group % 4 : group) * 64);
          const int shift = f.nibbles && group >= 4 ? 4 : 0, mask = f.nibbles ? 15 : 255;
          std::int32_t* to = products[group / 4];
          for (int lane = 0; lane < 16; ++lane) {
            for (int i = 0; i < 4; ++i) {
              to[lane] += ((values[lane * 4 + i] >> shift) & mask) * x[group * 4 + i];
            }
          }
        }
        const float x_total = b.totals[row * b.blocks + block];
        for (int lane = 0; lane < 16; ++lane) {
          const std::int32_t first = products[0][lane] - f.bias * x_sums[0];
          const std::int32_t second = products[1][lane] - f.bias * x_sums[1];
          if (halves) {
            sums[lane] =
                __builtin_fmaf(static_cast<float>(first), scale[lane] * x_scale, sums[lane]);
            sums[lane] =
                __builtin_fmaf(static_cast<float>(second), scale[16 + lane] * x_scale, sums[lane]);
          } else {
            sums[lane] = __builtin_fmaf(static_cast<float>(first + second), scale[lane] * x_scale,
                                        sums[lane]);
          }
          if (shifted) sums[lane] = __builtin_fmaf(offset[lane], x_total, sums[lane]);
        }
      }
      for (std::int64_t lane = 0; lane < 16 && s * 16 + lane < b.columns; ++lane) {
        float* y = b.y + row * b.ldy + s * 16 + lane;
        *y = b.bias == nullptr ? sums[lane] : sums[lane] + b.bias[s * 16 + lane];
      }
    }
  }
}

}  // namespace
}  // namespace weft::nn
