// Products of quantised weights with rows of x quantised to int8. Plain data only
// (see row_kernels.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/nn/cpu/quant_tiles.h"

namespace weft::nn {

// A row of x in blocks of 32: r = x * (127 / largest |x|), q = round(r) to nearest
// even, and the scale that fits those q best, (largest / 127) * (sum of r q / sum of
// q q): by least squares the error is 1/32 smaller than with largest / 127. sums[2 *
// block] are the sums of q over half blocks. A block with a value that is not finite
// gets scale NaN and zeros. Below 1e-36 a block counts as zero (the reciprocal would
// overflow).
void quantize_row_int8(const float* x, std::int64_t n, std::int8_t* q, float* scale,
                       std::int32_t* sums);

struct Int8Block {
  QuantFormat format;
  const std::byte* w;  // first strip
  std::int64_t strip_bytes;
  std::int64_t strips;
  std::int64_t columns;      // <= 16 * strips
  std::int64_t blocks;       // of 32 columns of x
  const std::int8_t* q;      // [rows][blocks][32]
  const float* scale;        // [rows][blocks]
  const std::int32_t* sums;  // [rows][blocks][2]
  const float* totals;       // [rows][blocks]: scale * float(both sums)
  std::int64_t rows;
  const float* bias;  // of the first column, or null
  float* y;
  std::int64_t ldy;
};

struct Int8Kernels {
  void (*quantize)(const float* x, std::int64_t n, std::int8_t* q, float* scale,
                   std::int32_t* sums);
  void (*product)(const Int8Block& block);
};

extern const Int8Kernels kInt8KernelsScalar, kInt8KernelsAvx2, kInt8KernelsAvx512, kInt8KernelsAmx;

}  // namespace weft::nn
