#include "weft/nn/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/base/result.h"
#include "weft/nn/cpu/dispatch.h"

namespace weft::nn {

void rms_norm(const float* x, const float* weight, float eps, std::int64_t rows, std::int64_t n,
              float* y, float* inv_rms, ThreadPool& pool) {
  pool.parallel_for(rows, row_grain(n), [&](std::int64_t begin, std::int64_t end) {
    row_kernels().rms_norm(x + begin * n, weight, eps, end - begin, n, y + begin * n,
                           inv_rms == nullptr ? nullptr : inv_rms + begin);
  });
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps,
                std::int64_t rows, std::int64_t n, float* y, float* mean, float* inv_std,
                ThreadPool& pool) {
  pool.parallel_for(rows, row_grain(n), [&](std::int64_t begin, std::int64_t end) {
    row_kernels().layer_norm(x + begin * n, weight, bias, eps, end - begin, n, y + begin * n,
                             mean == nullptr ? nullptr : mean + begin,
                             inv_std == nullptr ? nullptr : inv_std + begin);
  });
}

void rope(const RopeTable& table, const std::int32_t* positions, std::int64_t rows,
          std::int64_t heads, std::int64_t head_dim, float* x, std::int64_t ld, bool inverse,
          ThreadPool& pool) {
  const std::int64_t half = table.rotary_dim / 2, known = table.positions();
  WEFT_CHECK(table.rotary_dim <= head_dim, "rotary_dim {} exceeds head_dim {}", table.rotary_dim,
             head_dim);
  pool.parallel_for(rows, row_grain(heads * head_dim), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      WEFT_CHECK(positions[row] >= 0 && positions[row] < known, "position {} of a table of {}",
                 positions[row], known);
      const std::int64_t at = positions[row] * half;
      row_kernels().rope(table.cos.data() + at, table.sin.data() + at, half, heads, head_dim,
                         inverse ? -1.0F : 1.0F, x + row * ld);
    }
  });
}

void silu_mul(const float* gate_up, std::int64_t rows, std::int64_t n, float* y, ThreadPool& pool) {
  pool.parallel_for(rows, row_grain(4 * n), [&](std::int64_t begin, std::int64_t end) {
    row_kernels().silu_mul(gate_up + begin * 2 * n, end - begin, n, y + begin * n);
  });
}

void gelu(const float* x, std::int64_t count, bool tanh_form, float* y, ThreadPool& pool) {
  // Pieces of whole vectors; the last one takes the rest.
  const std::int64_t vectors = (count + 15) / 16;
  pool.parallel_for(vectors, row_grain(64), [&](std::int64_t begin, std::int64_t end) {
    row_kernels().gelu(x + begin * 16, std::min(end * 16, count) - begin * 16, tanh_form,
                       y + begin * 16);
  });
}

void log_sum_exp(const float* logits, std::int64_t rows, std::int64_t n, float temperature,
                 float* max, float* lse, ThreadPool& pool) {
  const float inverse = 1.0F / temperature;
  pool.parallel_for(rows, row_grain(2 * n), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      float top = 0.0F, sum = 0.0F;
      row_kernels().log_sum_exp(logits + row * n, n, inverse, &top, &sum);
      if (max != nullptr) max[row] = top;
      if (lse != nullptr) lse[row] = top + log_f32(sum);
    }
  });
}

float log_prob(const float* logits, std::int64_t n, float temperature, std::int64_t token) {
  const float inverse = 1.0F / temperature;
  float top = 0.0F, sum = 0.0F;
  row_kernels().log_sum_exp(logits, n, inverse, &top, &sum);
  return logits[token] * inverse - (top + log_f32(sum));
}

float largest_logit(const float* logits, std::int64_t n, float inv_temperature,
                    std::int64_t* index) {
  return row_kernels().largest_logit(logits, n, inv_temperature, index);
}

static_assert(kSoftmaxBlock == kSoftmaxBlockLogits);
float softmax_weights(const float* logits, std::int64_t n, float inv_temperature, float peak,
                      float least, float* weights, double* running) {
  return row_kernels().softmax_weights(logits, n, inv_temperature, peak, least, weights, running);
}

void exp_f32(const float* x, std::int64_t n, float* y) { row_kernels().exp(x, n, y); }

// The same operations as exp() in cpu/transcendental_lanes.h, in the same order.
float exp_f32(float x) {
  constexpr float kMagic = 12582912.0F;
  x = -104.0F > x ? -104.0F : x;
  x = 89.0F < x ? 89.0F : x;
  const float n = __builtin_fmaf(x, 1.44269504F, kMagic) - kMagic;
  float r = __builtin_fmaf(n, -0.693359375F, x);
  r = __builtin_fmaf(n, 2.12194440e-4F, r);
  float p = 1.9875691500e-4F;
  p = __builtin_fmaf(p, r, 1.3981999507e-3F);
  p = __builtin_fmaf(p, r, 8.3334519073e-3F);
  p = __builtin_fmaf(p, r, 4.1665795894e-2F);
  p = __builtin_fmaf(p, r, 1.6666665459e-1F);
  p = __builtin_fmaf(p, r, 5.0000001201e-1F);
  p = __builtin_fmaf(p, r * r, r);
  p = p + 1.0F;
  const float half = __builtin_fmaf(n, 0.5F, kMagic);
  const float rest = (n - (half - kMagic)) + kMagic;
  const auto power = [](float magic) {
    return __builtin_bit_cast(float,
                              (__builtin_bit_cast(std::uint32_t, magic) << 23) + 0x3f800000U);
  };
  return p * power(half) * power(rest);
}

// Cephes logf: mantissa to [sqrt(1/2), sqrt(2)), degree-9 polynomial.
float log_f32(float x) {
  if (!(x > 0.0F)) {
    return x == 0.0F ? -std::numeric_limits<float>::infinity()
                     : std::numeric_limits<float>::quiet_NaN();
  }
  if (x == std::numeric_limits<float>::infinity()) return x;
  float e = 0.0F;
  if (x < std::numeric_limits<float>::min()) {
    x *= 8388608.0F;
    e = -23.0F;
  }
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
  e += static_cast<float>(static_cast<int>(bits >> 23) - 127);
  float m = __builtin_bit_cast(float, (bits & 0x7fffffU) | 0x3f800000U);
  if (m > 1.41421356F) {
    m *= 0.5F;
    e += 1.0F;
  }
  m -= 1.0F;
  const float z = m * m;
  float p = 7.0376836292e-2F;
  p = __builtin_fmaf(p, m, -1.1514610310e-1F);
  p = __builtin_fmaf(p, m, 1.1676998740e-1F);
  p = __builtin_fmaf(p, m, -1.2420140846e-1F);
  p = __builtin_fmaf(p, m, 1.4249322787e-1F);
  p = __builtin_fmaf(p, m, -1.6668057665e-1F);
  p = __builtin_fmaf(p, m, 2.0000714765e-1F);
  p = __builtin_fmaf(p, m, -2.4999993993e-1F);
  p = __builtin_fmaf(p, m, 3.3333331174e-1F);
  float r = p * m * z;
  r = __builtin_fmaf(e, -2.12194440e-4F, r);
  r = __builtin_fmaf(-0.5F, z, r);
  return __builtin_fmaf(e, 0.693359375F, m + r);
}

}  // namespace weft::nn
