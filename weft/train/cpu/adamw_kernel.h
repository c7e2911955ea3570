// The loop of one AdamW step over a range, compiled once for each instruction
// level; only IEEE operations in a fixed order, so every level gives the same bits.
#pragma once

#include <cmath>
#include <cstdint>

namespace weft::train {

struct AdamWConstants {
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float gradient_scale;
  float keep;                     // 1 - lr * weight_decay, or 1
  float step_size;                // lr / (1 - beta1^t)
  float inverse_root_correction;  // 1 / sqrt(1 - beta2^t)
  float epsilon;
};
using AdamWRange = void (*)(const AdamWConstants&, float* w, float* g, float* m, float* v,
                            std::int64_t count);
// Adds the squares of g[0..count) to 16 lanes of doubles, lane i % 16.
using SquareSums = void (*)(const float* g, std::int64_t count, double* lanes);

struct OptimizerKernels {
  AdamWRange adamw;
  SquareSums squares;
};
const OptimizerKernels& optimizer_kernels_scalar();
const OptimizerKernels& optimizer_kernels_avx2();
const OptimizerKernels& optimizer_kernels_avx512();

namespace {

[[maybe_unused]] void adamw_range(const AdamWConstants& c, float* __restrict w, float* __restrict g,
                                  float* __restrict m, float* __restrict v, std::int64_t count) {
  const AdamWConstants k = c;
  for (std::int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * k.gradient_scale;
    const float first = k.beta1 * m[i] + k.one_minus_beta1 * gradient;
    const float second = k.beta2 * v[i] + k.one_minus_beta2 * (gradient * gradient);
    m[i] = first;
    v[i] = second;
    const float denominator = std::sqrt(second) * k.inverse_root_correction + k.epsilon;
    w[i] = w[i] * k.keep - k.step_size * (first / denominator);
    g[i] = 0.0F;
  }
}

[[maybe_unused]] void square_sums(const float* g, std::int64_t count, double* lanes) {
  double sums[16];
  for (int lane = 0; lane < 16; ++lane) sums[lane] = lanes[lane];
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int lane = 0; lane < 16; ++lane) {
      const double x = g[i + lane];
      sums[lane] += x * x;
    }
  }
  for (int lane = 0; i < count; ++i, ++lane) {
    const double x = g[i];
    sums[lane] += x * x;
  }
  for (int lane = 0; lane < 16; ++lane) lanes[lane] = sums[lane];
}

}  // namespace
}  // namespace weft::train
