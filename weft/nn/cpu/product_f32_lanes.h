// f32 matrix products on lanes. A lane is one output column, so the sum over k
// is one chain of fused multiply-adds in ascending k at every level.
#pragma once

#include "weft/nn/cpu/row_kernels.h"
#include "weft/nn/cpu/transcendental_lanes.h"

namespace weft::nn {
namespace {

// R rows by S strips; `columns` <= 16 * S are stored.
template <int R, int S>
inline void product_tile(const float* w, std::int64_t k, const float* x, std::int64_t ldx,
                         const float* bias, bool accumulate, std::int64_t columns, float* y,
                         std::int64_t ldy) {
  Lanes sums[R][S];
  for (int r = 0; r < R; ++r) {
    for (int s = 0; s < S; ++s) {
      const std::int64_t left = columns - 16 * s;
      float* o = y + r * ldy + 16 * s;
      sums[r][s] = !accumulate ? splat(0.0F) : left >= 16 ? load(o) : load_part(o, left, 0.0F);
    }
  }
  for (std::int64_t i = 0; i < k; ++i) {
    Lanes b[S];
    for (int s = 0; s < S; ++s) b[s] = load(w + (s * k + i) * 16);
    for (int r = 0; r < R; ++r) {
      const Lanes a = splat(x[r * ldx + i]);
      for (int s = 0; s < S; ++s) sums[r][s] = fma(a, b[s], sums[r][s]);
    }
  }
  for (int s = 0; s < S; ++s) {
    const std::int64_t left = columns - 16 * s;
    for (int r = 0; r < R; ++r) {
      float* o = y + r * ldy + 16 * s;
      Lanes value = sums[r][s];
      if (left >= 16) {
        if (bias != nullptr) value = add(value, load(bias + 16 * s));
        store(o, value);
      } else {
        if (bias != nullptr) value = add(value, load_part(bias + 16 * s, left, 0.0F));
        store_part(o, left, value);
      }
    }
  }
}

template <int S>
inline void product_strips(const float* w, std::int64_t k, const float* x, std::int64_t m,
                           std::int64_t ldx, const float* bias, bool accumulate,
                           std::int64_t columns, float* y, std::int64_t ldy) {
  std::int64_t row = 0;
  for (; row + kProductRows <= m; row += kProductRows) {
    product_tile<kProductRows, S>(w, k, x + row * ldx, ldx, bias, accumulate, columns,
                                  y + row * ldy, ldy);
  }
  for (; row < m; ++row) {
    product_tile<1, S>(w, k, x + row * ldx, ldx, bias, accumulate, columns, y + row * ldy, ldy);
  }
}

void product_f32_lanes(const float* w, std::int64_t k, std::int64_t strips, std::int64_t columns,
                       const float* x, std::int64_t m, std::int64_t ldx, const float* bias,
                       bool accumulate, float* y, std::int64_t ldy) {
  // A single row has one chain per strip: several strips hide the latency.
  constexpr int kWide = 8;
  std::int64_t strip = 0;
  while (strip < strips) {
    const float* tile = w + strip * k * 16;
    const float* part_bias = bias == nullptr ? nullptr : bias + strip * 16;
    const std::int64_t left = columns - strip * 16;
    float* out = y + strip * 16;
    if (m < kProductRows && strips - strip >= kWide) {
      for (std::int64_t row = 0; row < m; ++row) {
        product_tile<1, kWide>(tile, k, x + row * ldx, ldx, part_bias, accumulate, left,
                               out + row * ldy, ldy);
      }
      strip += kWide;
    } else if (strips - strip >= kProductStrips) {
      product_strips<kProductStrips>(tile, k, x, m, ldx, part_bias, accumulate, left, out, ldy);
      strip += kProductStrips;
    } else {
      product_strips<1>(tile, k, x, m, ldx, part_bias, accumulate, left, out, ldy);
      strip += 1;
    }
  }
}

// R rows of dw by S vectors of 16 columns.
template <int R, int S>
inline void gradient_tile(const float* dy, std::int64_t lddy, const float* x, std::int64_t ldx,
                          std::int64_t rows, float* dw, std::int64_t lddw) {
  Lanes sums[R][S];
  for (int r = 0; r < R; ++r) {
    for (int s = 0; s < S; ++s) sums[r][s] = load(dw + r * lddw + 16 * s);
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    Lanes b[S];
    for (int s = 0; s < S; ++s) b[s] = load(x + i * ldx + 16 * s);
    for (int r = 0; r < R; ++r) {
      const Lanes a = splat(dy[i * lddy + r]);
      for (int s = 0; s < S; ++s) sums[r][s] = fma(a, b[s], sums[r][s]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int s = 0; s < S; ++s) store(dw + r * lddw + 16 * s, sums[r][s]);
  }
}

template <int R>
inline void gradient_rows(const float* dy, std::int64_t lddy, const float* x, std::int64_t ldx,
                          std::int64_t rows, std::int64_t in, float* dw, std::int64_t lddw) {
  std::int64_t column = 0;
  for (; column + 16 * kProductStrips <= in; column += 16 * kProductStrips) {
    gradient_tile<R, kProductStrips>(dy, lddy, x + column, ldx, rows, dw + column, lddw);
  }
  for (; column + 16 <= in; column += 16) {
    gradient_tile<R, 1>(dy, lddy, x + column, ldx, rows, dw + column, lddw);
  }
  for (; column < in; ++column) {
    for (int r = 0; r < R; ++r) {
      float s = dw[r * lddw + column];
      for (std::int64_t i = 0; i < rows; ++i) {
        s = __builtin_fmaf(dy[i * lddy + r], x[i * ldx + column], s);
      }
      dw[r * lddw + column] = s;
    }
  }
}

void gradient_f32_lanes(const float* dy, std::int64_t lddy, const float* x, std::int64_t ldx,
                        std::int64_t rows, std::int64_t out_begin, std::int64_t out_end,
                        std::int64_t in, float* dw, std::int64_t lddw) {
  std::int64_t row = out_begin;
  for (; row + kProductRows <= out_end; row += kProductRows) {
    gradient_rows<kProductRows>(dy + row, lddy, x, ldx, rows, in, dw + row * lddw, lddw);
  }
  for (; row < out_end; ++row) {
    gradient_rows<1>(dy + row, lddy, x, ldx, rows, in, dw + row * lddw, lddw);
  }
}

}  // namespace
}  // namespace weft::nn
