// Backward passes of the row-wise operators, of attention over packed sequences
// and of the log-probabilities. Gradients of inputs are written; gradients of
// parameters are added, row by row in ascending order, to what is there: a batch
// split anywhere between rows gives the same bits. So do all instruction levels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/thread_pool.h"

namespace weft::nn {

// y = x / rms(x) * weight. dx[i] = residual[i] + gradient of x (residual may be
// null, or dx itself); dweight[n] += .
void rms_norm_backward(const float* x, const float* weight, const float* inv_rms, const float* dy,
                       const float* residual, std::int64_t rows, std::int64_t n, float* dx,
                       float* dweight, ThreadPool& pool);
// y = (x - mean) / std * weight + bias; dweight[n] += and dbias[n] += .
void layer_norm_backward(const float* x, const float* weight, const float* mean,
                         const float* inv_std, const float* dy, const float* residual,
                         std::int64_t rows, std::int64_t n, float* dx, float* dweight, float* dbias,
                         ThreadPool& pool);
// y = silu(gate) * up, where a row is [gate(n), up(n)].
void silu_mul_backward(const float* gate_up, const float* dy, std::int64_t rows, std::int64_t n,
                       float* dgate_up, ThreadPool& pool);
void gelu_backward(const float* x, const float* dy, std::int64_t count, bool tanh_form, float* dx,
                   ThreadPool& pool);
// sums[n] += the rows of dy (stride ld), in order: the gradient of a bias.
void add_rows(const float* dy, std::int64_t rows, std::int64_t n, std::int64_t ld, float* sums,
              ThreadPool& pool);
// y[i] = a[i] + b[i]; y may be a or b.
void add(const float* a, const float* b, std::int64_t count, float* y, ThreadPool& pool);

// Entropy of softmax(logits / temperature) of each row, in nats, given its
// log-sum-exp (nn::log_sum_exp).
void row_entropy(const float* logits, const float* lse, std::int64_t rows, std::int64_t n,
                 float temperature, float* entropy, ThreadPool& pool);
// In place, logits[i, :] becomes the gradient of the loss by the logits of row i, from
// dlogprob[i] (of the log-probability of tokens[i]) and dentropy[i] with entropy[i] (both null, or
// neither).
void log_prob_backward(float* logits, const float* lse, const std::int32_t* tokens,
                       const float* dlogprob, const float* entropy, const float* dentropy,
                       std::int64_t rows, std::int64_t n, float temperature, ThreadPool& pool);

// A run of rows of a packed batch: consecutive positions of one sequence, from
// `first_position`. Its queries see the rows of `parent` (another segment, earlier in
// the batch, that starts at position 0 and ends at first_position; -1 = none), then
// its own.
struct Segment {
  std::int64_t begin = 0, end = 0;  // rows
  std::int64_t first_position = 0;
  std::int64_t parent = -1;
  bool operator==(const Segment&) const = default;
};

// Gradient of causal grouped-query attention. qkv rows are [heads + 2 kv_heads,
// head_dim] (q, k, v; rotated), as the forward pass saw them; out and logsumexp are
// its results. units: row borders; no segment has its parent in another unit. dqkv is
// written; dk and dv of a parent's rows sum over its own queries and then over its
// children in ascending order.
struct AttentionGradient {
  std::int64_t heads, kv_heads, head_dim;
  float scale;
  std::int64_t window = 0;  // 0 = all earlier positions
  const float* qkv;         // [rows, (heads + 2 kv_heads) head_dim]
  const float* out;         // [rows, heads head_dim]
  const float* logsumexp;   // [rows, heads]
  const float* dout;        // [rows, heads head_dim]
  float* dqkv;              // [rows, (heads + 2 kv_heads) head_dim]
  bool bf16 = false;        // products of bf16 with f32 sums, where the processor has tiles
};
void attention_backward(const AttentionGradient& gradient, std::span<const Segment> segments,
                        ThreadPool& pool);

}  // namespace weft::nn
