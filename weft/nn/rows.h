// Rows: an operand of a product that is either an array or computed where it is used.
#pragma once

#include <cstdint>
#include <functional>

#include "weft/nn/matmul.h"

namespace weft::nn {

// Rows of f32. With `fill`, rows are made in blocks just before they are rounded to bf16,
// so that they never travel to memory in f32: fill(begin, end, buffer) gives rows
// [begin, end) without gaps, in `buffer` or in an array of its own. It may be called from
// several threads, once for each row.
struct Rows {
  using Fill = std::function<const float*(std::int64_t begin, std::int64_t end, float* buffer)>;
  const float* data = nullptr;  // rows at a stride of ld floats; null with `fill`
  std::int64_t ld = 0;
  Fill fill;
};

// matmul() of rows that may be computed: the same bits (kBF16; other ways of computing
// make an array of them first).
void matmul(const PackedMatrix& w, const Rows& x, std::int64_t m, const float* bias, float* y,
            std::int64_t ldy, ThreadPool& pool);

}  // namespace weft::nn
