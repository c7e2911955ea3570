// Differentiable operators of the decoder-only families. On the CPU the forward
// calls the kernels that the sampler calls, in the same order, and the backward is
// ours; on other devices they are compositions of at:: operators (composed.h).
// All activations are f32 [rows, width]. Not thread-safe: one graph at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "weft/model/config.h"
#include "weft/nn/autograd/parameter.h"
#include "weft/nn/ops.h"

namespace weft::nn::autograd {

// Rows of the embedding (plus learned positions, if defined). `anchor` is any tensor
// that requires grad: through it the graph hangs together.
at::Tensor embedding(Run& run, const at::Tensor& anchor, const Matrix& table,
                     const Vector& positions, EmbeddingGradient* gradient);

// y = x w^T + bias.
at::Tensor linear(Run& run, const at::Tensor& x, const Matrix& weight, const Vector& bias);

// x' = x + delta (delta may be undefined: x' = x) and its norm: RMSNorm when `bias` is
// not defined, LayerNorm otherwise. Gives {x', norm(x')}.
std::pair<at::Tensor, at::Tensor> add_norm(Run& run, const at::Tensor& x, const at::Tensor& delta,
                                           const Vector& weight, const Vector& bias, float eps);

// The rows `batch.target_rows` of x + delta.
at::Tensor add_select(Run& run, const at::Tensor& x, const at::Tensor& delta);

struct AttentionConfig {
  AttentionShape shape;
  float norm_eps = 0.0F;
  const RopeTable* rope = nullptr;  // null: none (learned positions)
  SegmentKv* kv = nullptr;
  bool bf16_backward = false;  // see AttentionGradient::bf16
};
// QK-norm (where defined), rotation, attention. Consumes qkv: its memory is reused.
at::Tensor attention(Run& run, const at::Tensor& qkv, const Vector& q_norm, const Vector& k_norm,
                     const AttentionConfig& config);

// Two chains whose inner results are never stored (block_functions.cpp). Pointers must
// outlive the graph.
struct NormParameters {
  const Vector *weight, *bias;  // RMSNorm when `bias` has no value, LayerNorm otherwise
  float eps;
};
// add_norm() and linear(): x' = x + delta and linear(norm(x')).
std::pair<at::Tensor, at::Tensor> norm_linear(Run& run, const at::Tensor& x,
                                              const at::Tensor& delta, const NormParameters& norm,
                                              const Matrix& weight, const Vector& bias);
// x' = x + delta and down(silu(gate) * up), [gate, up] = gate_up(norm(x')).
struct GatedMlp {
  const Matrix *gate_up = nullptr, *down = nullptr;
  const Vector *gate_up_bias = nullptr, *down_bias = nullptr;
};
std::pair<at::Tensor, at::Tensor> gated_mlp(Run& run, const at::Tensor& x, const at::Tensor& delta,
                                            const NormParameters& norm, const GatedMlp& mlp);

at::Tensor gelu(Run& run, const at::Tensor& x, bool tanh_form);

// Log-probabilities of the targets of the batch from the final states [targets, hidden],
// and the entropies of their distributions if asked (else undefined). The logits of
// at most `max_logit_rows` rows exist at a time; more are computed again for the
// backward pass.
struct LogProbs {
  at::Tensor logprob, entropy;  // [targets]
};
LogProbs log_probs(Run& run, const at::Tensor& states, const Matrix& head, float temperature,
                   bool entropy, std::int64_t max_logit_rows);

// states * weight + bias: a scalar for each row. weight [hidden], bias [1].
at::Tensor value_head(Run& run, const at::Tensor& states, const Vector& weight, const Vector& bias);

}  // namespace weft::nn::autograd
