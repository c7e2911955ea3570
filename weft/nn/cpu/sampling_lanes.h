// What sampling does over a whole row of logits, on lanes: the largest one and the
// exponentials. Limit: a row of 49,152 logits lies in the second-level cache, so the
// exponentials bound it: about 22 instructions for 16 logits, 1.4 cycles a vector
// unit, some 15 us a row.
#pragma once

#include "weft/nn/cpu/row_kernels.h"
#include "weft/nn/cpu/transcendental_lanes.h"

namespace weft::nn {
namespace {

inline Lanes scaled_part(const float* p, std::int64_t n, Lanes scale, float other) {
  return keep_range(mul(load_part(p, n, 0.0F), scale), 0, static_cast<int>(n) - 1, other);
}

float largest_logit_lanes(const float* logits, std::int64_t n, float inv_temperature,
                          std::int64_t* index) {
  const float lowest = -__builtin_inff();
  const Lanes scale = splat(inv_temperature);
  float best = lowest;
  std::int64_t best_block = 0;
  for (std::int64_t begin = 0; begin < n; begin += kSoftmaxBlockLogits) {
    const std::int64_t end = begin + kSoftmaxBlockLogits < n ? begin + kSoftmaxBlockLogits : n;
    // Two chains; max(x, top) keeps `top` where x is NaN.
    Lanes a = splat(lowest), b = a;
    std::int64_t i = begin;
    for (; i + 32 <= end; i += 32) {
      a = max(mul(load(logits + i), scale), a);
      b = max(mul(load(logits + i + 16), scale), b);
    }
    if (i + 16 <= end) {
      a = max(mul(load(logits + i), scale), a);
      i += 16;
    }
    if (i < end) b = max(scaled_part(logits + i, end - i, scale, lowest), b);
    const float top = largest(max(a, b));
    if (top > best) {
      best = top;
      best_block = begin;
    }
  }
  if (index != nullptr) {
    *index = best_block;
    while (*index + 1 < n && !(logits[*index] * inv_temperature == best)) ++*index;
  }
  return best;
}

float softmax_weights_lanes(const float* logits, std::int64_t n, float inv_temperature, float peak,
                            float least, float* weights, double* running) {
  const Lanes scale = splat(inv_temperature), centre = splat(peak);
  // w > below is w >= least for numbers, and false for NaN.
  const float floor = least > 1.17549435e-38F ? least : 1.17549435e-38F;
  const Lanes zero = splat(0.0F), below = splat(__builtin_nextafterf(floor, 0.0F));
  Lanes total = zero;
  double sum_so_far = 0.0;
  for (std::int64_t begin = 0; begin < n; begin += kSoftmaxBlockLogits) {
    const std::int64_t end = begin + kSoftmaxBlockLogits < n ? begin + kSoftmaxBlockLogits : n;
    Lanes block = zero;
    std::int64_t i = begin;
    for (; i + 16 <= end; i += 16) {
      const Lanes e = exp(sub(mul(load(logits + i), scale), centre));
      const Lanes kept = select_greater(e, below, e, zero);
      total = add(total, e);
      block = add(block, kept);
      if (weights != nullptr) store(weights + i, kept);
    }
    if (i < end) {
      const std::int64_t left = end - i;
      const Lanes e = keep_range(exp(sub(mul(load_part(logits + i, left, 0.0F), scale), centre)), 0,
                                 static_cast<int>(left) - 1, 0.0F);
      const Lanes kept = select_greater(e, below, e, zero);
      total = add(total, e);
      block = add(block, kept);
      if (weights != nullptr) store_part(weights + i, left, kept);
    }
    if (running == nullptr) continue;
    sum_so_far += static_cast<double>(sum(block));
    *running++ = sum_so_far;
  }
  return sum(total);
}

}  // namespace
}  // namespace weft::nn
