// The bf16 product kernels of one instruction level. Plain data and pointers
// only (see row_kernels.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/nn/cpu/quant_tiles.h"

namespace weft::nn {

// y[rows, strips] of one block: w strips are [chunks][16][16][2] bf16.
struct Bf16Block {
  const std::uint16_t* w;     // first strip
  std::int64_t strip_stride;  // in uint16
  std::int64_t strips;
  std::int64_t columns;  // <= 16 * strips: what is stored of y
  std::int64_t chunks;   // of 32 columns of x
  // Rows of x, rounded to bf16 and zero-padded to whole chunks, as `convert`
  // laid them out; `row` is the first, a multiple of 16. Blocks of 16 rows are
  // `x_stride` apart (in uint16): more than `chunks` when K is taken in pieces.
  const std::uint16_t* x;
  std::int64_t x_stride;
  std::int64_t row, rows;
  const float* bias;  // of the first column, or null
  bool accumulate;    // sums start from y
  float* y;           // of row 0 and the first column
  std::int64_t ldy;
  bool stream = false;  // at most 64 rows, and the weights come from memory
};

// One run of rows of dw.
struct Bf16Gradient {
  // As convert_gradient lays them out: tile (of 16 outputs or columns) t and chunk c at
  // t * stride + c * 512.
  const std::uint16_t* dy;
  const std::uint16_t* x;
  std::int64_t stride;
  std::int64_t chunks;  // of 32 rows
  std::int64_t out, in;
  std::int64_t out_begin, out_end;  // multiples of 32, or the end
  float* dw;
  std::int64_t lddw;
};

// Strips of quantised weights times up to 64 rows of x.
struct Bf16QuantBlock {
  QuantFormat format;
  const std::byte* w;  // first strip
  std::int64_t strip_bytes;
  std::int64_t strips;
  std::int64_t columns;
  std::int64_t chunks;
  const std::uint16_t* x;  // as convert() laid it out
  std::int64_t rows;       // <= 16
  const float* bias;
  float* y;
  std::int64_t ldy;
  std::uint16_t* scratch;  // chunks * 512
};

struct Bf16Kernels {
  // Converts rows [begin, end) of x[.., k] into `to`: [row / 16][chunk][16][32].
  void (*convert)(const float* x, std::int64_t ldx, std::int64_t k, std::int64_t begin,
                  std::int64_t end, std::uint16_t* to);
  void (*product)(const Bf16Block& block);
  // Converts one chunk of up to 32 rows (the rest zero) of `columns` columns for
  // the gradient into tiles of 16 columns, `stride` apart; `as_dy` says which operand
  // it is.
  void (*convert_gradient)(const float* x, std::int64_t ldx, std::int64_t rows,
                           std::int64_t columns, bool as_dy, std::uint16_t* to,
                           std::int64_t stride);
  void (*gradient)(const Bf16Gradient& gradient);
  // Packs up to 32 rows of w (f32): into two strips of `forward` at this chunk of
  // rows, and as chunk of the transposed matrix into every strip of `transposed`.
  // Either may be null. Missing rows and columns become zero.
  void (*pack)(const float* w, std::int64_t ldw, std::int64_t rows, std::int64_t columns,
               std::uint16_t* forward, std::int64_t forward_stride, std::uint16_t* transposed,
               std::int64_t transposed_stride);
  // One strip of `tiles` quantised tiles into bf16 tiles as `product` reads them.
  void (*dequantize)(const QuantFormat& format, const std::byte* strip, std::int64_t tiles,
                     std::uint16_t* to);
  // The product of few rows without that detour; null where there is none.
  void (*product_few)(const Bf16QuantBlock& block);
};

extern const Bf16Kernels kBf16KernelsScalar, kBf16KernelsAvx2, kBf16KernelsAvx512, kBf16KernelsAmx;

}  // namespace weft::nn
