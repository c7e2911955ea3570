#include "weft/train/adamw.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "weft/base/result.h"
#include "weft/nn/isa.h"
#include "weft/train/cpu/adamw_kernel.h"

namespace weft::train {
namespace {

constexpr std::int64_t kNormBlock = 4096;

const OptimizerKernels& kernels() {
  switch (nn::cpu_isa()) {
    case nn::Isa::kScalar:
      return optimizer_kernels_scalar();
    case nn::Isa::kAvx2:
      return optimizer_kernels_avx2();
    default:
      return optimizer_kernels_avx512();
  }
}

}  // namespace

double gradient_norm(std::span<const float> gradients, ThreadPool& pool) {
  const auto count = static_cast<std::int64_t>(gradients.size());
  const std::int64_t blocks = (count + kNormBlock - 1) / kNormBlock;
  std::vector<double> sums(static_cast<std::size_t>(blocks));
  pool.parallel_for(blocks, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      double lanes[16] = {};
      const std::int64_t first = block * kNormBlock;
      kernels().squares(gradients.data() + first, std::min(kNormBlock, count - first), lanes);
      for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
      }
      sums[static_cast<std::size_t>(block)] = lanes[0];
    }
  });
  double total = 0.0;
  for (double sum : sums) total += sum;
  return std::sqrt(total);
}

void adamw_step(const AdamWOptions& options, std::int64_t step, double learning_rate,
                double gradient_scale, std::span<const ParameterRange> ranges,
                std::span<float> weights, std::span<float> gradients, std::span<float> m,
                std::span<float> v, ThreadPool& pool) {
  WEFT_CHECK(step >= 1 && weights.size() == gradients.size() && weights.size() == m.size() &&
             weights.size() == v.size());
  const auto exponent = static_cast<double>(step);
  AdamWConstants constants = {
      .beta1 = static_cast<float>(options.beta1),
      .one_minus_beta1 = static_cast<float>(1.0 - options.beta1),
      .beta2 = static_cast<float>(options.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - options.beta2),
      .gradient_scale = static_cast<float>(gradient_scale),
      .keep = 1.0F,
      .step_size = static_cast<float>(learning_rate / (1.0 - std::pow(options.beta1, exponent))),
      .inverse_root_correction =
          static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options.beta2, exponent))),
      .epsilon = static_cast<float>(options.epsilon),
  };
  for (const ParameterRange& range : ranges) {
    WEFT_CHECK(range.begin >= 0 && range.begin <= range.end &&
               range.end <= static_cast<std::int64_t>(weights.size()));
    constants.keep =
        range.decay ? static_cast<float>(1.0 - learning_rate * options.weight_decay) : 1.0F;
    pool.parallel_for(range.end - range.begin, 16384, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t at = range.begin + begin;
      kernels().adamw(constants, &weights[at], &gradients[at], &m[at], &v[at], end - begin);
    });
  }
}

}  // namespace weft::train
