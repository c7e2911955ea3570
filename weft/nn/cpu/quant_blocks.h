// GGML's quantised blocks taken apart into integers, scales and offsets.
#pragma once

#include <cstdint>

#include "weft/base/dtype.h"

namespace weft::nn {

// One row of n elements: element i is scale * q - or + offset, per group.
// Q4_0, Q8_0:        scale[i / 32] * q[i]
// Q4_1:              scale[i / 32] * q[i] + offset[i / 32]
// Q4_K, Q5_K:        scale[i / 32] * q[i] - offset[i / 32], scale = d * sc, offset = dmin * m
// Q6_K:              scale[i / 16] * q[i], scale = d * sc
// where product and sum round separately, as dequantisation does.
struct QuantRow {
  std::int8_t* q;
  float* scale;
  float* offset;
};
constexpr std::int64_t scale_group(DType type) { return type == DType::kQ6_K ? 16 : 32; }
constexpr int offset_sign(DType type) {
  return type == DType::kQ4_1 ? 1 : type == DType::kQ4_K || type == DType::kQ5_K ? -1 : 0;
}

// The 6-bit scale and minimum of sub-block j of a Q4_K or Q5_K block's 12 bytes.
void scale_and_min(int j, const std::byte* s, unsigned& scale, unsigned& minimum);

void unpack_quant_row(DType type, const std::byte* row, std::int64_t n, const QuantRow& to);

// The dequantised row.
void dequantize_quant_row(DType type, const std::byte* row, std::int64_t n, float* out);

}  // namespace weft::nn
