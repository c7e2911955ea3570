// Matrix products y = x * w^T with one order of summation per weight format and
// instruction level, whatever the number of rows, threads or the caller's path.
#pragma once

#include <cstdint>
#include <memory>

#include "weft/base/result.h"
#include "weft/base/tensor_view.h"
#include "weft/base/thread_pool.h"

namespace weft::nn {

// How a product is computed; what x is rounded to is part of the meaning.
enum class Compute : std::uint8_t {
  kF32,   // f32 x f32, f32 sums
  kBF16,  // x and w rounded to bf16, products summed in f32. Quantised w is
          // dequantised (in f32), rounded to bf16, on the fly.
  kInt8,  // quantised w only: x quantised per row and block of 32 to int8, integer
          // sums per block, f32 sums over blocks. Never used by trainers or rollouts.
};

// A weight matrix [out, in] repacked once for the kernels of this machine.
// Immutable, shared by copies, safe to use from many threads.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  std::int64_t out() const;  // rows of w = columns of y
  std::int64_t in() const;   // columns of w = columns of x
  Compute compute() const;
  DType dtype() const;         // of the stored weights
  std::int64_t bytes() const;  // resident size
  explicit operator bool() const { return data_ != nullptr; }
  struct Data;
  const Data* data() const { return data_.get(); }
  explicit PackedMatrix(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

 private:
  std::shared_ptr<const Data> data_;
};

// Packs w (any dtype; several views with equal columns are stacked by rows, so
// q, k and v become one matrix). kInt8 needs a quantised dtype of 32-blocks or
// K-blocks; kF32 dequantises.
Result<PackedMatrix> pack_matrix(const std::vector<TensorView>& stacked, Compute compute,
                                 ThreadPool& pool);

// y[m, out] = x[m, in] * w^T (+ bias[out] if not null). Row strides ldx, ldy in
// floats. x and y must not overlap. Row i of y depends on row i of x alone.
//
// Order of summation over `in` (the contract that every level's scalar
// reference reproduces to the bit) is written in docs/numerics.md.
void matmul(const PackedMatrix& w, const float* x, std::int64_t m, std::int64_t ldx,
            const float* bias, float* y, std::int64_t ldy, ThreadPool& pool);

// The same in plain C++, one product at a time: the oracle of the kernels.
void matmul_reference(const PackedMatrix& w, const float* x, std::int64_t m, std::int64_t ldx,
                      const float* bias, float* y, std::int64_t ldy);

// Row `row` of w as f32, as the product sees it (rounded to bf16 for kBF16): the
// embedding look-up of tied models.
void matrix_row(const PackedMatrix& w, std::int64_t row, float* out);

}  // namespace weft::nn
