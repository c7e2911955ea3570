// What the autograd functions read and write of tensors. Only for their .cpp files.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "weft/base/result.h"

namespace weft::nn::autograd {

// Null for an undefined tensor. f32 on the CPU only.
inline const float* data(const at::Tensor& t) {
  return t.defined() ? t.const_data_ptr<float>() : nullptr;
}
inline float* mutable_data(const at::Tensor& t) {
  return t.defined() ? static_cast<float*>(t.mutable_data_ptr()) : nullptr;
}
// A gradient that torch handed over, contiguous.
inline at::Tensor dense(const at::Tensor& gradient) {
  WEFT_CHECK(gradient.defined() && gradient.scalar_type() == at::kFloat);
  return gradient.contiguous();
}
// Function::apply takes no undefined tensors, but empty optionals.
inline std::optional<at::Tensor> present(const at::Tensor& t) {
  return t.defined() ? std::optional(t) : std::nullopt;
}

}  // namespace weft::nn::autograd
