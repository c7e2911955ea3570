// The two products of a matrix layer's backward pass. With y = x * w^T:
//   dx[m, in]   (+)= dy[m, out] * w
//   dw[out, in]  += dy^T * x
// and the refresh of packed weights from their f32 masters after a step.
// Orders of summation: docs/numerics.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/result.h"
#include "weft/base/tensor_view.h"
#include "weft/base/thread_pool.h"
#include "weft/nn/matmul.h"
#include "weft/nn/rows.h"

namespace weft::nn {

// w^T of the stacked views, packed so that matmul_dx multiplies by it:
// a PackedMatrix with out() = columns and in() = all rows of the stack.
Result<PackedMatrix> pack_transposed(const std::vector<TensorView>& stacked, Compute compute,
                                     ThreadPool& pool);

// dx[m, in] = dy[m, out] * w, or dx += with `accumulate`: the sum over out then
// starts from dx's value. kBF16 rounds dy to bf16. dy and dx must not overlap.
void matmul_dx(const PackedMatrix& transposed, const float* dy, std::int64_t m, std::int64_t lddy,
               float* dx, std::int64_t lddx, bool accumulate, ThreadPool& pool);
void matmul_dx_reference(const PackedMatrix& transposed, const float* dy, std::int64_t m,
                         std::int64_t lddy, float* dx, std::int64_t lddx, bool accumulate);

// dw[out, in] += dy^T * x over the rows in ascending order, the sum starting from
// dw's values. kBF16 rounds dy and x to bf16 and adds chunks of 32 rows that never
// cross a border of `segments` (numbers of rows, in order, summing to all rows):
// rows of a segment are padded with zeros to whole chunks. So a batch cut at
// segment borders and accumulated in order gives the bits of the whole batch.
struct GradientShape {
  std::int64_t out, in;
};
void matmul_dw(Compute compute, GradientShape shape, std::span<const std::int64_t> segments,
               const float* dy, std::int64_t lddy, const float* x, std::int64_t ldx, float* dw,
               std::int64_t lddw, ThreadPool& pool);
void matmul_dw_reference(Compute compute, GradientShape shape,
                         std::span<const std::int64_t> segments, const float* dy, std::int64_t lddy,
                         const float* x, std::int64_t ldx, float* dw, std::int64_t lddw);

// Both at once, dw[out, in] += dy^T x (null: frozen) and dx[rows, in] = dy w: the bits of
// matmul_dw and matmul_dx, but dy is read, or computed, and rounded only once.
// `transposed` is what matmul_dx takes.
void matmul_backward(const PackedMatrix& transposed, std::span<const std::int64_t> segments,
                     const Rows& dy, const Rows& x, float* dw, float* dx, ThreadPool& pool);

// Overwrites packs of the same stack (kF32 or kBF16, packed from plain types) with
// new values from f32 masters, in one pass over them; either pack may be empty.
// Every copy of the packs sees the change: nobody may be using them meanwhile.
void repack(const std::vector<TensorView>& masters, const PackedMatrix& forward,
            const PackedMatrix& transposed, ThreadPool& pool);

}  // namespace weft::nn
