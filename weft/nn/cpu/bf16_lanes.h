// bf16 products without bf16 instructions, on lanes: the values are rounded to
// bf16, products and sums are f32 fused multiply-adds in ascending k.
#pragma once

#include <cstddef>

#include "weft/nn/cpu/bf16_convert.h"
#include "weft/nn/cpu/bf16_kernels.h"
#include "weft/nn/cpu/quant_scales.h"
#include "weft/nn/cpu/transcendental_lanes.h"

namespace weft::nn {
namespace {

void convert_lanes(const float* x, std::int64_t ldx, std::int64_t k, std::int64_t begin,
                   std::int64_t end, std::uint16_t* to) {
  const std::int64_t chunks = (k + 31) / 32;
  for (std::int64_t row = begin; row < end; ++row) {
    std::uint16_t* out = to + (row / 16 * chunks) * 512 + row % 16 * 32;
    const float* in = x + row * ldx;
    for (std::int64_t i = 0; i < chunks * 32; ++i) {
      out[i / 32 * 512 + i % 32] = i < k ? to_bf16(in[i]) : std::uint16_t{0};
    }
  }
}

void convert_gradient_lanes(const float* x, std::int64_t ldx, std::int64_t rows,
                            std::int64_t columns, bool as_dy, std::uint16_t* to,
                            std::int64_t stride) {
  for (std::int64_t tile = 0; tile * 16 < columns; ++tile, to += stride) {
    for (std::int64_t c = 0; c < 16; ++c) {
      for (std::int64_t r = 0; r < 32; ++r) {
        const bool inside = r < rows && tile * 16 + c < columns;
        const std::uint16_t value = inside ? to_bf16(x[r * ldx + tile * 16 + c]) : std::uint16_t{0};
        to[as_dy ? c * 32 + r : r / 2 * 32 + c * 2 + r % 2] = value;
      }
    }
  }
}

inline Lanes load_columns(const float* p, std::int64_t columns) {
  return columns >= 16 ? load(p) : load_part(p, columns, 0.0F);
}
inline void store_columns(float* p, std::int64_t columns, Lanes x) {
  if (columns >= 16) {
    store(p, x);
  } else {
    store_part(p, columns, x);
  }
}

// Adds one 32-wide chunk for R rows: a[r] are 16 pairs, w a [16][16][2] tile.
template <int R>
inline void add_chunk(const std::uint16_t* a, std::int64_t a_stride, const std::uint16_t* w,
                      Lanes* sums) {
  for (int pair = 0; pair < 16; ++pair) {
    Lanes even, odd;
    load_pairs(w + pair * 32, even, odd);
    for (int r = 0; r < R; ++r) {
      Lanes a_even, a_odd;
      splat_pair(a + r * a_stride + pair * 2, a_even, a_odd);
      sums[r] = fma(a_even, even, sums[r]);
      sums[r] = fma(a_odd, odd, sums[r]);
    }
  }
}

template <int R>
inline void bf16_tile(const Bf16Block& b, std::int64_t row, std::int64_t strip) {
  const std::int64_t columns = b.columns - strip * 16;
  float* y = b.y + row * b.ldy + strip * 16;
  Lanes sums[R];
  for (int r = 0; r < R; ++r) {
    sums[r] = b.accumulate ? load_columns(y + r * b.ldy, columns) : splat(0.0F);
  }
  const std::uint16_t* a = b.x + row / 16 * b.x_stride + row % 16 * 32;
  const std::uint16_t* w = b.w + strip * b.strip_stride;
  for (std::int64_t chunk = 0; chunk < b.chunks; ++chunk, a += 512, w += 512) {
    add_chunk<R>(a, 32, w, sums);
  }
  for (int r = 0; r < R; ++r) {
    if (b.bias != nullptr) sums[r] = add(sums[r], load_columns(b.bias + strip * 16, columns));
    store_columns(y + r * b.ldy, columns, sums[r]);
  }
}

void product_lanes(const Bf16Block& b) {
  for (std::int64_t strip = 0; strip < b.strips; ++strip) {
    std::int64_t row = b.row;
    for (; row + 4 <= b.row + b.rows; row += 4) bf16_tile<4>(b, row, strip);
    for (; row < b.row + b.rows; ++row) bf16_tile<1>(b, row, strip);
  }
}

void gradient_lanes(const Bf16Gradient& g) {
  const std::int64_t in_tiles = (g.in + 15) / 16;
  for (std::int64_t o = g.out_begin; o < g.out_end; ++o) {
    for (std::int64_t tile = 0; tile < in_tiles; ++tile) {
      float* dw = g.dw + o * g.lddw + tile * 16;
      const std::int64_t columns = g.in - tile * 16;
      Lanes sum = load_columns(dw, columns);
      const std::uint16_t* a = g.dy + o / 16 * g.stride + o % 16 * 32;
      const std::uint16_t* x = g.x + tile * g.stride;
      for (std::int64_t chunk = 0; chunk < g.chunks; ++chunk) {
        add_chunk<1>(a + chunk * 512, 0, x + chunk * 512, &sum);
      }
      store_columns(dw, columns, sum);
    }
  }
}

void pack_lanes(const float* w, std::int64_t ldw, std::int64_t rows, std::int64_t columns,
                std::uint16_t* forward, std::int64_t forward_stride, std::uint16_t* transposed,
                std::int64_t transposed_stride) {
  for (std::int64_t r = 0; r < 32; ++r) {
    for (std::int64_t c = 0; c < (columns + 31) / 32 * 32; ++c) {
      const std::uint16_t value =
          r < rows && c < columns ? to_bf16(w[r * ldw + c]) : std::uint16_t{0};
      // The second strip exists only if it has rows.
      if (forward != nullptr && (r < 16 || rows > 16)) {
        forward[r / 16 * forward_stride + c / 32 * 512 + c % 32 / 2 * 32 + r % 16 * 2 + c % 2] =
            value;
      }
      if (transposed != nullptr && c < (columns + 15) / 16 * 16) {
        transposed[c / 16 * transposed_stride + r / 2 * 32 + c % 16 * 2 + r % 2] = value;
      }
    }
  }
}

void dequantize_lanes(const QuantFormat& f, const std::byte* strip, std::int64_t tiles,
                      std::uint16_t* to) {
  const bool shifted = f.kind == QuantKind::kScaleOffset || f.kind == QuantKind::kScales;
  for (std::int64_t t = 0; t < tiles; ++t, to += 512) {
    const std::byte* tile = strip + f.tile_offset(t);
    float scale[32], offset[16];
    scales_lanes(f, strip + f.header_offset(t), tile + f.value_bytes, scale, offset);
    for (std::int64_t r = 0; r < 16; ++r) {
      const auto weigh = [&](int q, float d) {
        const float product = d * static_cast<float>(q);
        return to_bf16(shifted ? product + offset[r] : product);
      };
      std::uint16_t* out = to + r * 2;
      if (f.nibbles) {
        std::uint16_t table[16];
        for (int q = 0; q < 16; ++q) table[q] = weigh(q - f.bias, scale[r]);
        const std::byte* words = tile + r / 4 * 64 + r % 4 / 2;
        const int shift = static_cast<int>(r % 2 * 4);
        for (int i = 0; i < 32; ++i) {
          out[i / 2 * 32 + i % 2] = table[(static_cast<unsigned>(words[2 * i]) >> shift) & 15U];
        }
      } else {
        for (int i = 0; i < 32; ++i) {
          out[i / 2 * 32 + i % 2] =
              weigh(static_cast<std::int8_t>(tile[r * 32 + i]), scale[i / 16 * 16 + r]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::nn
