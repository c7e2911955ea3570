// What the autograd functions are given besides activations. These functions add
// parameter gradients straight to the buffers named here (torch sees no leaf for them),
// row by row in ascending order, so that micro-batches split between units of a batch
// give the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "weft/base/thread_pool.h"
#include "weft/nn/autograd/buffer_pool.h"
#include "weft/nn/matmul.h"
#include "weft/nn/packed_batch.h"

namespace weft::nn::autograd {

// A trainable vector (norm, bias). Undefined `grad` = frozen; undefined `value` = none.
struct Vector {
  at::Tensor value;  // f32 [n]
  at::Tensor grad;   // f32 [n]
};

// A matrix [out, in]. On the CPU products use `packed` (forward) and `transposed`
// (gradient of the input); elsewhere `value`, which requires grad there.
struct Matrix {
  at::Tensor value;  // f32 master, or undefined when frozen
  at::Tensor grad;   // f32, or undefined when frozen
  PackedMatrix packed;
  PackedMatrix transposed;
};

// Gradient of the token embedding, apart from a tied head's until both are added:
// the order of the two sums must not depend on micro-batches.
struct EmbeddingGradient {
  std::unordered_map<std::int32_t, std::int64_t> row_of_token;
  std::vector<std::int32_t> tokens;
  std::vector<float> rows;  // [tokens.size(), hidden]
  void add(std::int32_t token, const float* gradient, std::int64_t hidden);
  // Adds the gathered rows to `grad` [vocab, hidden] and forgets them.
  void flush(float* grad, std::int64_t hidden);
};

// What one forward and backward pass works with; outlives the graph it made.
struct Run {
  ThreadPool& pool;
  std::shared_ptr<BufferPool> buffers;
  const PackedBatch& batch;
  bool composed = false;  // at:: compositions on the CPU too

  // Whether operators on x are compositions of at:: operators (composed.h).
  bool composes(const at::Tensor& x) const { return composed || !x.is_cpu(); }
};

}  // namespace weft::nn::autograd
