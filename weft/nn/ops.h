// Row-wise operators. Each result row depends on its own input row alone; sums
// run over 16 fixed lanes and a fixed tree; exp, log and the rest are our own
// polynomials, so bits depend on the instruction level only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/thread_pool.h"
#include "weft/model/config.h"

namespace weft::nn {

// y = x / rms(x) * weight, per row of n. inv_rms (per row) may be null.
void rms_norm(const float* x, const float* weight, float eps, std::int64_t rows, std::int64_t n,
              float* y, float* inv_rms, ThreadPool& pool);
// y = (x - mean) / std * weight + bias. mean and inv_std may be null.
void layer_norm(const float* x, const float* weight, const float* bias, float eps,
                std::int64_t rows, std::int64_t n, float* y, float* mean, float* inv_std,
                ThreadPool& pool);

// cos/sin of one head for positions [0, positions): [positions, rotary_dim / 2] each.
struct RopeTable {
  std::int64_t rotary_dim = 0;
  std::vector<float> cos, sin;
  std::int64_t positions() const;
};
RopeTable make_rope_table(const model::ModelConfig& config, std::int64_t positions);
// Rotates `heads` heads of row i in place at positions[i]; row stride ld floats.
// `inverse` rotates back (the backward pass).
void rope(const RopeTable& table, const std::int32_t* positions, std::int64_t rows,
          std::int64_t heads, std::int64_t head_dim, float* x, std::int64_t ld, bool inverse,
          ThreadPool& pool);

// y[i] = silu(gate[i]) * up[i], where a row is [gate(n), up(n)].
void silu_mul(const float* gate_up, std::int64_t rows, std::int64_t n, float* y, ThreadPool& pool);
// GELU, tanh form or erf form.
void gelu(const float* x, std::int64_t count, bool tanh_form, float* y, ThreadPool& pool);

// max and log-sum-exp of each row of n logits, each multiplied by the rounded
// 1 / temperature. max or lse may be null.
void log_sum_exp(const float* logits, std::int64_t rows, std::int64_t n, float temperature,
                 float* max, float* lse, ThreadPool& pool);
// log-probability of `token` in one row: logit/temperature - lse, as sampler and
// trainer both compute it.
float log_prob(const float* logits, std::int64_t n, float temperature, std::int64_t token);

// The largest of n logits, each multiplied by the rounded inverse temperature; NaNs
// are left out (-infinity if there is nothing else). `index`, if not null, takes the
// first place that has it.
float largest_logit(const float* logits, std::int64_t n, float inv_temperature,
                    std::int64_t* index);
// One pass over the exponentials e = exp(logit * inv_temperature - peak): gives their
// lane sum, so that peak + log of it is log_sum_exp's to the bit. A weight is e, or 0
// where e is below `least`, not a normal number, or NaN. `weights` (or null) takes
// them, `running` (or null) the sum of all weights so far after each block of
// kSoftmaxBlock logits; within a block by lanes in f32, over blocks in f64.
inline constexpr std::int64_t kSoftmaxBlock = 256;
float softmax_weights(const float* logits, std::int64_t n, float inv_temperature, float peak,
                      float least, float* weights, double* running);

// Our transcendentals, one value at a time (the vector forms give the same bits
// at the same level).
float exp_f32(float x);
void exp_f32(const float* x, std::int64_t n, float* y);
float log_f32(float x);

}  // namespace weft::nn
