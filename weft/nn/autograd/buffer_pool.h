// Memory of activations, kept from step to step: a fresh large buffer costs page
// faults that take longer than the operator that fills it.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <memory>

namespace weft::nn::autograd {

// Thread-safe. Tensors return their memory when they die and may outlive the pool.
class BufferPool {
 public:
  BufferPool();
  // An f32 tensor on the CPU, 64-byte aligned, not initialised.
  at::Tensor empty(std::initializer_list<std::int64_t> shape);
  std::int64_t bytes() const;  // held, in use or not

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace weft::nn::autograd
