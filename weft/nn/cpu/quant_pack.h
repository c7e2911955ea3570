// Filling quantised tiles from GGML's blocks, and reading single weights back.
#pragma once

#include "weft/base/dtype.h"
#include "weft/base/tensor_view.h"
#include "weft/nn/cpu/quant_tiles.h"

namespace weft::nn {

QuantFormat quant_format(DType type);

// Rows [first_row, first_row + 16) of the view into one strip; rows beyond the
// view weigh zero.
void pack_quant_strip(const TensorView& view, std::int64_t first_row, bool for_int8,
                      std::byte* strip);

// The scales of one tile: scale[16] (twice for kHalfScales), and the offset with
// its sign where the kind has one, else zero.
void quant_scales(const QuantFormat& format, const std::byte* strip, std::int64_t tile,
                  float* scale, float* offset);
// The integer of one weight, bias subtracted.
int quant_value(const QuantFormat& format, const std::byte* strip, bool for_int8, std::int64_t row,
                std::int64_t column);
// A whole row, dequantised in f32.
void quant_row(const QuantFormat& format, const std::byte* strip, bool for_int8, std::int64_t row,
               std::int64_t columns, float* out);

}  // namespace weft::nn
