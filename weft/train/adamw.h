// AdamW (Loshchilov & Hutter 2019, decoupled weight decay) over one flat arena of
// parameters, and the global gradient norm; both in a fixed order.
#pragma once

#include <cstdint>
#include <span>

#include "weft/base/thread_pool.h"

namespace weft::train {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  // on matrices; never on norms and biases
};

// A run of parameters of the arena with one decay.
struct ParameterRange {
  std::int64_t begin = 0, end = 0;
  bool decay = false;
};

// sqrt(sum of squares) in double: blocks of 4,096 floats, each summed over 16 lanes,
// block sums added in order. Not finite if any gradient is not.
double gradient_norm(std::span<const float> gradients, ThreadPool& pool);

// One step, number `step` (1 is the first). Every gradient is multiplied by
// `gradient_scale` (the clipping factor) and then set to zero:
//   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
//   w = w - lr wd w - (lr / (1-b1^t)) m / (sqrt(v) / sqrt(1-b2^t) + eps)
// Element-wise, without fused multiply-add: the same bits on every processor. Pass
// over 28 bytes a parameter, bound by memory.
void adamw_step(const AdamWOptions& options, std::int64_t step, double learning_rate,
                double gradient_scale, std::span<const ParameterRange> ranges,
                std::span<float> weights, std::span<float> gradients, std::span<float> m,
                std::span<float> v, ThreadPool& pool);

}  // namespace weft::train
