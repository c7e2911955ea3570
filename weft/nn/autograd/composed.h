// The operators of functions.h as compositions of at:: operators: what runs on
// devices other than the CPU, and the reference of our kernels' gradients in tests.
// Parameter gradients go through torch's autograd into `value.grad()`.
#pragma once

#include "weft/nn/autograd/functions.h"

namespace weft::nn::autograd::composed {

at::Tensor embedding(const PackedBatch& batch, const Matrix& table, const Vector& positions,
                     std::int64_t hidden);
at::Tensor linear(const at::Tensor& x, const Matrix& weight, const Vector& bias);
at::Tensor norm(const at::Tensor& x, const Vector& weight, const Vector& bias, float eps);
at::Tensor select(const PackedBatch& batch, const at::Tensor& x);
at::Tensor attention(const PackedBatch& batch, const at::Tensor& qkv, const Vector& q_norm,
                     const Vector& k_norm, const AttentionConfig& config);
at::Tensor gated_silu(const at::Tensor& gate_up);
at::Tensor gelu(const at::Tensor& x, bool tanh_form);
LogProbs log_probs(const PackedBatch& batch, const at::Tensor& states, const Matrix& head,
                   float temperature, bool entropy);
at::Tensor value_head(const at::Tensor& states, const Vector& weight, const Vector& bias);

}  // namespace weft::nn::autograd::composed
