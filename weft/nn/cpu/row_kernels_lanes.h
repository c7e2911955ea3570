// The row-wise operators on lanes: included once by each row_kernels_<level>.cpp
// after that level's lanes. Sums run over 16 lanes (element i in lane i % 16, in
// ascending i) and the tree of sum().
#pragma once

#include "weft/nn/cpu/row_kernels.h"
#include "weft/nn/cpu/transcendental_lanes.h"

namespace weft::nn {
namespace {

inline float square_root(float x) { return __builtin_sqrtf(x); }

void rms_norm_lanes(const float* x, const float* weight, float eps, std::int64_t rows,
                    std::int64_t n, float* y, float* inv_rms) {
  const std::int64_t whole = n & ~std::int64_t{15};
  for (std::int64_t row = 0; row < rows; ++row, x += n, y += n) {
    Lanes squares = splat(0.0F);
    for (std::int64_t i = 0; i < whole; i += 16) squares = fma(load(x + i), load(x + i), squares);
    if (whole < n) {
      const Lanes tail = load_part(x + whole, n - whole, 0.0F);
      squares = fma(tail, tail, squares);
    }
    const float inverse = 1.0F / square_root(sum(squares) / static_cast<float>(n) + eps);
    const Lanes scale = splat(inverse);
    for (std::int64_t i = 0; i < whole; i += 16) {
      store(y + i, mul(mul(load(x + i), scale), load(weight + i)));
    }
    if (whole < n) {
      const std::int64_t left = n - whole;
      store_part(
          y + whole, left,
          mul(mul(load_part(x + whole, left, 0.0F), scale), load_part(weight + whole, left, 0.0F)));
    }
    if (inv_rms != nullptr) inv_rms[row] = inverse;
  }
}

void layer_norm_lanes(const float* x, const float* weight, const float* bias, float eps,
                      std::int64_t rows, std::int64_t n, float* y, float* mean, float* inv_std) {
  const std::int64_t whole = n & ~std::int64_t{15}, left = n - whole;
  const int last = static_cast<int>(left) - 1;
  for (std::int64_t row = 0; row < rows; ++row, x += n, y += n) {
    Lanes total = splat(0.0F);
    for (std::int64_t i = 0; i < whole; i += 16) total = add(total, load(x + i));
    if (left > 0) total = add(total, load_part(x + whole, left, 0.0F));
    const float average = sum(total) / static_cast<float>(n);
    const Lanes centre = splat(average);
    Lanes squares = splat(0.0F);
    for (std::int64_t i = 0; i < whole; i += 16) {
      const Lanes d = sub(load(x + i), centre);
      squares = fma(d, d, squares);
    }
    if (left > 0) {
      const Lanes d = keep_range(sub(load_part(x + whole, left, 0.0F), centre), 0, last, 0.0F);
      squares = fma(d, d, squares);
    }
    const float inverse = 1.0F / square_root(sum(squares) / static_cast<float>(n) + eps);
    const Lanes scale = splat(inverse);
    for (std::int64_t i = 0; i < whole; i += 16) {
      const Lanes d = mul(sub(load(x + i), centre), scale);
      store(y + i, fma(d, load(weight + i), load(bias + i)));
    }
    if (left > 0) {
      const Lanes d = mul(sub(load_part(x + whole, left, 0.0F), centre), scale);
      store_part(
          y + whole, left,
          fma(d, load_part(weight + whole, left, 0.0F), load_part(bias + whole, left, 0.0F)));
    }
    if (mean != nullptr) mean[row] = average;
    if (inv_std != nullptr) inv_std[row] = inverse;
  }
}

void rope_lanes(const float* cos, const float* sin, std::int64_t half, std::int64_t heads,
                std::int64_t head_dim, float sign, float* x) {
  const Lanes direction = splat(sign), zero = splat(0.0F);
  for (std::int64_t head = 0; head < heads; ++head, x += head_dim) {
    for (std::int64_t i = 0; i < half; i += 16) {
      const std::int64_t n = half - i;
      if (n >= 16) {
        const Lanes c = load(cos + i), s = mul(load(sin + i), direction);
        const Lanes a = load(x + i), b = load(x + half + i);
        store(x + i, fma(a, c, sub(zero, mul(b, s))));
        store(x + half + i, fma(b, c, mul(a, s)));
      } else {
        const Lanes c = load_part(cos + i, n, 1.0F);
        const Lanes s = mul(load_part(sin + i, n, 0.0F), direction);
        const Lanes a = load_part(x + i, n, 0.0F), b = load_part(x + half + i, n, 0.0F);
        store_part(x + i, n, fma(a, c, sub(zero, mul(b, s))));
        store_part(x + half + i, n, fma(b, c, mul(a, s)));
      }
    }
  }
}

// x / (1 + e^-x)
inline Lanes silu(Lanes x) { return div(x, add(splat(1.0F), exp(sub(splat(0.0F), x)))); }

void silu_mul_lanes(const float* gate_up, std::int64_t rows, std::int64_t n, float* y) {
  const std::int64_t whole = n & ~std::int64_t{15}, left = n - whole;
  for (std::int64_t row = 0; row < rows; ++row, gate_up += 2 * n, y += n) {
    const float* up = gate_up + n;
    for (std::int64_t i = 0; i < whole; i += 16) {
      store(y + i, mul(silu(load(gate_up + i)), load(up + i)));
    }
    if (left > 0) {
      store_part(
          y + whole, left,
          mul(silu(load_part(gate_up + whole, left, 0.0F)), load_part(up + whole, left, 0.0F)));
    }
  }
}

// x * sigmoid(2 * sqrt(2/pi) * (x + 0.044715 x^3)), the tanh form rewritten.
inline Lanes gelu_tanh(Lanes x) {
  const Lanes cube = mul(mul(x, x), x);
  const Lanes inner = fma(splat(0.044715F), cube, x);
  return div(x, add(splat(1.0F), exp(mul(splat(-1.59576912F), inner))));
}

// 0.5 * x * erfc(-x / sqrt(2)), erfc by the rational Chebyshev fit of Numerical
// Recipes (section 6.2, fractional error below 1.2e-7).
inline Lanes gelu_erf(Lanes x) {
  const Lanes z = mul(x, splat(-0.707106781F));
  const Lanes a = absolute(z);
  const Lanes t = div(splat(1.0F), fma(splat(0.5F), a, splat(1.0F)));
  Lanes p = splat(0.17087277F);
  p = fma(p, t, splat(-0.82215223F));
  p = fma(p, t, splat(1.48851587F));
  p = fma(p, t, splat(-1.13520398F));
  p = fma(p, t, splat(0.27886807F));
  p = fma(p, t, splat(-0.18628806F));
  p = fma(p, t, splat(0.09678418F));
  p = fma(p, t, splat(0.37409196F));
  p = fma(p, t, splat(1.00002368F));
  p = fma(p, t, splat(-1.26551223F));
  const Lanes tail = mul(t, exp(sub(p, mul(a, a))));
  const Lanes erfc = select_greater(splat(0.0F), z, sub(splat(2.0F), tail), tail);
  return mul(mul(splat(0.5F), x), erfc);
}

void gelu_lanes(const float* x, std::int64_t count, bool tanh_form, float* y) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const std::int64_t n = count - i;
    const Lanes v = n >= 16 ? load(x + i) : load_part(x + i, n, 0.0F);
    const Lanes r = tanh_form ? gelu_tanh(v) : gelu_erf(v);
    if (n >= 16) {
      store(y + i, r);
    } else {
      store_part(y + i, n, r);
    }
  }
}

void log_sum_exp_lanes(const float* logits, std::int64_t n, float inv_temperature, float* max_out,
                       float* sum_out) {
  const std::int64_t whole = n & ~std::int64_t{15}, left = n - whole;
  const float lowest = -__builtin_inff();
  const Lanes scale = splat(inv_temperature);
  Lanes top = splat(lowest);
  for (std::int64_t i = 0; i < whole; i += 16) top = max(mul(load(logits + i), scale), top);
  if (left > 0) {
    const Lanes tail = mul(load_part(logits + whole, left, 0.0F), scale);
    top = max(keep_range(tail, 0, static_cast<int>(left) - 1, lowest), top);
  }
  const float peak = largest(top);
  const Lanes centre = splat(peak);
  Lanes total = splat(0.0F);
  for (std::int64_t i = 0; i < whole; i += 16) {
    total = add(total, exp(sub(mul(load(logits + i), scale), centre)));
  }
  if (left > 0) {
    const Lanes tail = exp(sub(mul(load_part(logits + whole, left, 0.0F), scale), centre));
    total = add(total, keep_range(tail, 0, static_cast<int>(left) - 1, 0.0F));
  }
  *max_out = peak;
  *sum_out = sum(total);
}

void exp_lanes(const float* x, std::int64_t n, float* y) {
  for (std::int64_t i = 0; i < n; i += 16) {
    if (n - i >= 16) {
      store(y + i, exp(load(x + i)));
    } else {
      store_part(y + i, n - i, exp(load_part(x + i, n - i, 0.0F)));
    }
  }
}

}  // namespace
}  // namespace weft::nn
