// Products of quantised weights with rows of x quantised to int8.
#pragma once

#include <cstdint>

#include "weft/base/thread_pool.h"
#include "weft/nn/cpu/packed_matrix.h"

namespace weft::nn {

// A row of x in blocks of 32: q = round(x * (127 / largest |x|)), to nearest even.
// A block with a value that is not finite gets scale NaN.
void quantize_row_int8(const float* x, std::int64_t n, std::int8_t* q, float* scale);

void product_int8(const PackedMatrix::Data& w, const float* x, std::int64_t m, std::int64_t ldx,
                  const float* bias, float* y, std::int64_t ldy, ThreadPool& pool);

}  // namespace weft::nn
