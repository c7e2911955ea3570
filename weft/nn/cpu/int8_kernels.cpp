#include "weft/nn/cpu/int8_kernels.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "weft/nn/cpu/dispatch.h"
#include "weft/nn/cpu/quant_blocks.h"

namespace weft::nn {

void quantize_row_int8(const float* x, std::int64_t n, std::int8_t* q, float* scale) {
  for (std::int64_t block = 0; block * 32 < n; ++block, x += 32, q += 32) {
    float top = 0.0F;
    bool finite = true;
    for (int i = 0; i < 32; ++i) {
      const float a = std::fabs(x[i]);
      finite = finite && a <= 3.40282347e+38F;
      top = a > top ? a : top;
    }
    scale[block] = finite ? top / 127.0F : __builtin_nanf("");
    // Below this the reciprocal would overflow; such a block counts as zero.
    const float inverse = finite && top >= 1.0e-36F ? 127.0F / top : 0.0F;
    for (int i = 0; i < 32; ++i) {
      q[i] = finite ? static_cast<std::int8_t>(std::nearbyintf(x[i] * inverse)) : std::int8_t{0};
    }
  }
}

void product_int8(const PackedMatrix::Data& w, const float* x, std::int64_t m, std::int64_t ldx,
                  const float* bias, float* y, std::int64_t ldy, ThreadPool& pool) {
  const std::int64_t k = w.in, blocks = k / kChunk;
  std::vector<std::int8_t> q(static_cast<std::size_t>(m * k));
  std::vector<float> scale(static_cast<std::size_t>(m * blocks));
  for (std::int64_t row = 0; row < m; ++row) {
    quantize_row_int8(x + row * ldx, k, q.data() + row * k, scale.data() + row * blocks);
  }
  for (const Part& part : w.parts) {
    const Int8Tile tile = int8_tile(part.dtype);
    const std::int64_t group = kChunk / tile.groups;
    pool.parallel_for(part.strips, row_grain(m * k), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t strip = first; strip < last; ++strip) {
        for (std::int64_t row = 0; row < m; ++row) {
          float sums[kStrip] = {};
          const std::byte* at = w.strip(part, strip);
          const std::int8_t* a = q.data() + row * k;
          for (std::int64_t block = 0; block < blocks; ++block, at += tile.bytes(), a += kChunk) {
            const auto* values = reinterpret_cast<const std::int8_t*>(at);
            const auto* scales = reinterpret_cast<const float*>(at + 512);
            const float x_scale = scale[static_cast<std::size_t>(row * blocks + block)];
            int total = 0;
            for (int i = 0; i < 32; ++i) total += a[i];
            const float x_sum = x_scale * static_cast<float>(total);
            for (std::int64_t lane = 0; lane < kStrip; ++lane) {
              for (std::int64_t g = 0; g < tile.groups; ++g) {
                int sum = 0;
                for (std::int64_t i = g * group; i < (g + 1) * group; ++i) {
                  sum += a[i] * values[i / 4 * 64 + lane * 4 + i % 4];
                }
                sums[lane] = __builtin_fmaf(static_cast<float>(sum),
                                            scales[g * kStrip + lane] * x_scale, sums[lane]);
              }
              if (tile.offset_sign != 0) {
                const float offset = scales[tile.groups * kStrip + lane];
                sums[lane] =
                    __builtin_fmaf(tile.offset_sign > 0 ? offset : -offset, x_sum, sums[lane]);
              }
            }
          }
          for (std::int64_t lane = 0; lane < kStrip && strip * kStrip + lane < part.rows; ++lane) {
            const std::int64_t column = part.first_row + strip * kStrip + lane;
            y[row * ldy + column] = bias == nullptr ? sums[lane] : sums[lane] + bias[column];
          }
        }
      }
    });
  }
}

}  // namespace weft::nn
