// The oracles: each level's arithmetic for one product at a time, in plain C++.
#include <algorithm>
#include <vector>

#include "weft/nn/cpu/bf16_convert.h"
#include "weft/nn/cpu/int8_kernels.h"
#include "weft/nn/cpu/packed_matrix.h"
#include "weft/nn/cpu/quant_pack.h"
#include "weft/nn/isa.h"
#include "weft/nn/matmul.h"
#include "weft/nn/matmul_backward.h"

namespace weft::nn {
namespace {

float flush(float x) {
  return __builtin_fabsf(x) < 1.17549435e-38F ? __builtin_copysignf(0.0F, x) : x;
}
// A fused multiply-add that takes subnormals for zero and gives zero for them.
float flushed_fma(float a, float b, float c) {
  return flush(__builtin_fmaf(flush(a), flush(b), flush(c)));
}

// Adds up to 32 products of bf16 values (as f32) to `sum`, as TDPBF16PS does:
// even and odd ones apart over 16 pairs, then together, then to the sum.
float add_chunk_amx(const float* a, const float* b, float sum) {
  float even = 0.0F, odd = 0.0F;
  for (int pair = 0; pair < 16; ++pair) {
    even = flushed_fma(a[2 * pair], b[2 * pair], even);
    odd = flushed_fma(a[2 * pair + 1], b[2 * pair + 1], odd);
  }
  return flush(flush(sum) + flush(even + odd));
}

// As VDPBF16PS: a pair adds its odd product, then its even one.
float add_chunk_avx512(const float* a, const float* b, float sum) {
  for (int pair = 0; pair < 16; ++pair) {
    sum = flushed_fma(a[2 * pair + 1], b[2 * pair + 1], sum);
    sum = flushed_fma(a[2 * pair], b[2 * pair], sum);
  }
  return sum;
}

float add_chunk(const float* a, const float* b, float sum) {
  switch (cpu_isa()) {
    case Isa::kAmx:
      return add_chunk_amx(a, b, sum);
    case Isa::kAvx512:
      return add_chunk_avx512(a, b, sum);
    default:
      for (int i = 0; i < 32; ++i) sum = __builtin_fmaf(a[i], b[i], sum);
      return sum;
  }
}

// One product of int8: exact integer sums per block (half block for kHalfScales),
// then f32 in ascending blocks.
float dot_int8(const Part& part, const std::vector<std::int8_t>& xq,
               const std::vector<float>& x_scale, const PackedMatrix::Data& w, std::int64_t row) {
  const QuantFormat f = quant_format(part.dtype);
  const std::byte* strip = w.strip(part, row / kStrip);
  const std::int64_t lane = row % kStrip, group = f.kind == QuantKind::kHalfScales ? 16 : 32;
  float sum = 0.0F;
  for (std::int64_t block = 0; block * kChunk < w.in; ++block) {
    float scale[32], offset[16];
    quant_scales(f, strip, block, scale, offset);
    const float x = x_scale[static_cast<std::size_t>(block)];
    int total = 0;
    for (std::int64_t start = 0; start < kChunk; start += group) {
      int products = 0;
      for (std::int64_t i = block * kChunk + start; i < block * kChunk + start + group; ++i) {
        products += xq[static_cast<std::size_t>(i)] * quant_value(f, strip, true, lane, i);
        total += xq[static_cast<std::size_t>(i)];
      }
      sum = __builtin_fmaf(static_cast<float>(products), scale[start + lane] * x, sum);
    }
    if (f.kind == QuantKind::kScaleOffset || f.kind == QuantKind::kScales) {
      sum = __builtin_fmaf(offset[lane], x * static_cast<float>(total), sum);
    }
  }
  return sum;
}

void reference(const PackedMatrix& w, const float* x, std::int64_t m, std::int64_t ldx,
               const float* bias, bool accumulate, float* y, std::int64_t ldy) {
  const PackedMatrix::Data& data = *w.data();
  const auto padded = static_cast<std::size_t>(round_up(data.in, kChunk));
  std::vector<float> a(padded), b(padded), scale(padded / 32);
  std::vector<std::int32_t> x_sums(padded / 16);
  std::vector<std::int8_t> q(padded);
  for (std::int64_t row = 0; row < m; ++row) {
    std::copy_n(x + row * ldx, data.in, a.begin());
    if (data.compute == Compute::kBF16) {
      for (float& v : a) v = from_bf16(to_bf16(v));
    }
    if (data.compute == Compute::kInt8) {
      quantize_row_int8(a.data(), data.in, q.data(), scale.data(), x_sums.data());
    }
    for (const Part& part : data.parts) {
      for (std::int64_t o = 0; o < part.rows; ++o) {
        float& result = y[row * ldy + part.first_row + o];
        float sum = accumulate ? result : 0.0F;
        if (part.layout == Layout::kQuantColumns) {
          sum = dot_int8(part, q, scale, data, o);
        } else {
          matrix_row(w, part.first_row + o, b.data());
          if (data.compute == Compute::kF32) {
            for (std::int64_t i = 0; i < data.in; ++i) sum = __builtin_fmaf(a[i], b[i], sum);
          } else {
            for (std::size_t i = 0; i < padded; i += 32) {
              sum = add_chunk(a.data() + i, b.data() + i, sum);
            }
          }
        }
        result = bias == nullptr ? sum : sum + bias[part.first_row + o];
      }
    }
  }
}

}  // namespace

void matmul_reference(const PackedMatrix& w, const float* x, std::int64_t m, std::int64_t ldx,
                      const float* bias, float* y, std::int64_t ldy) {
  reference(w, x, m, ldx, bias, false, y, ldy);
}

void matmul_dx_reference(const PackedMatrix& transposed, const float* dy, std::int64_t m,
                         std::int64_t lddy, float* dx, std::int64_t lddx, bool accumulate) {
  reference(transposed, dy, m, lddy, nullptr, accumulate, dx, lddx);
}

void matmul_dw_reference(Compute compute, GradientShape shape,
                         std::span<const std::int64_t> segments, const float* dy, std::int64_t lddy,
                         const float* x, std::int64_t ldx, float* dw, std::int64_t lddw) {
  for (std::int64_t o = 0; o < shape.out; ++o) {
    for (std::int64_t i = 0; i < shape.in; ++i) {
      float sum = dw[o * lddw + i];
      std::int64_t row = 0;
      for (std::int64_t segment : segments) {
        const std::int64_t end = row + segment;
        while (row < end) {
          float a[32] = {}, b[32] = {};
          const std::int64_t n = std::min(kChunk, end - row);
          for (std::int64_t r = 0; r < n; ++r) {
            a[r] = dy[(row + r) * lddy + o];
            b[r] = x[(row + r) * ldx + i];
            if (compute == Compute::kF32) {
              sum = __builtin_fmaf(a[r], b[r], sum);
            } else {
              a[r] = from_bf16(to_bf16(a[r]));
              b[r] = from_bf16(to_bf16(b[r]));
            }
          }
          if (compute == Compute::kBF16) sum = add_chunk(a, b, sum);
          row += n;
        }
      }
      dw[o * lddw + i] = sum;
    }
  }
}

}  // namespace weft::nn
