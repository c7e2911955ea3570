#include "weft/nn/cpu/quant_pack.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "weft/base/result.h"
#include "weft/nn/cpu/quant_blocks.h"

namespace weft::nn {
namespace {

std::uint16_t word_at(const std::byte* p) {
  std::uint16_t h;
  std::memcpy(&h, p, sizeof h);
  return h;
}
void put_word(std::byte* p, std::int64_t index, std::uint16_t h) {
  std::memcpy(p + 2 * index, &h, sizeof h);
}

// Where column i of row r of a tile lies.
void put_value(const QuantFormat& f, std::byte* tile, bool for_int8, std::int64_t r, std::int64_t i,
               int q) {
  const auto stored = static_cast<unsigned>(for_int8 || f.nibbles ? q + f.bias : q);
  if (for_int8) {
    const std::int64_t group = i / 4, lane = r * 4 + i % 4;
    if (f.nibbles) {
      tile[group % 4 * 64 + lane] |= static_cast<std::byte>(stored << (group / 4 * 4));
    } else {
      tile[group * 64 + lane] = static_cast<std::byte>(stored);
    }
  } else if (f.nibbles) {
    std::byte* word = tile + r / 4 * 64 + i * 2 + r % 4 / 2;
    *word |= static_cast<std::byte>(stored << (r % 2 * 4));
  } else {
    tile[r * 32 + i] = static_cast<std::byte>(stored);
  }
}

// Copies the raw scales of row r's blocks into the tiles.
void put_scales(const QuantFormat& f, DType type, const std::byte* blocks, std::int64_t tiles,
                std::int64_t r, std::byte* strip) {
  const std::int64_t block_size = block_bytes(type);
  const std::int64_t tiles_per_block = block_elements(type) / 32;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::byte* block = blocks + t / tiles_per_block * block_size;
    const int j = static_cast<int>(t % tiles_per_block);
    std::byte* to = strip + f.tile_offset(t) + f.value_bytes;
    std::byte* header = strip + f.header_offset(t);
    switch (f.kind) {
      case QuantKind::kScaleOffset:
        put_word(to, 16 + r, word_at(block + 2));
        [[fallthrough]];
      case QuantKind::kScale:
        put_word(to, r, word_at(block));
        break;
      case QuantKind::kScales: {
        unsigned scale = 0, minimum = 0;
        scale_and_min(j, block + 4, scale, minimum);
        to[r] = static_cast<std::byte>(scale);
        to[16 + r] = static_cast<std::byte>(minimum);
        put_word(header, r, word_at(block));
        put_word(header, 16 + r, word_at(block + 2));
        break;
      }
      case QuantKind::kHalfScales:
        to[r] = block[192 + 2 * j];
        to[16 + r] = block[192 + 2 * j + 1];
        put_word(header, r, word_at(block + 208));
        break;
    }
  }
}

}  // namespace

QuantFormat quant_format(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return {QuantKind::kScale, true, 8, 1, 0, 256, 288};
    case DType::kQ4_1:
      return {QuantKind::kScaleOffset, true, 0, 1, 0, 256, 320};
    case DType::kQ8_0:
      return {QuantKind::kScale, false, 128, 1, 0, 512, 544};
    case DType::kQ4_K:
      return {QuantKind::kScales, true, 0, 8, 64, 256, 288};
    case DType::kQ5_K:
      return {QuantKind::kScales, false, 0, 8, 64, 512, 544};
    case DType::kQ6_K:
      return {QuantKind::kHalfScales, false, 32, 8, 32, 512, 544};
    default:
      WEFT_CHECK(false, "{} is not a quantised type", to_string(type));
  }
}

void pack_quant_strip(const TensorView& view, std::int64_t first_row, bool for_int8,
                      std::byte* strip) {
  const QuantFormat f = quant_format(view.dtype);
  const std::int64_t n = view.columns(), tiles = n / 32;
  const std::int64_t row_bytes = n / block_elements(view.dtype) * block_bytes(view.dtype);
  std::memset(strip, 0, static_cast<std::size_t>(f.strip_bytes(n)));
  std::vector<std::int8_t> q(static_cast<std::size_t>(n));
  std::vector<float> scale(static_cast<std::size_t>(n / 16)), offset(scale.size());
  const std::int64_t rows = std::min<std::int64_t>(view.rows() - first_row, 16);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::byte* blocks = view.data + (first_row + r) * row_bytes;
    unpack_quant_row(view.dtype, blocks, n, {q.data(), scale.data(), offset.data()});
    for (std::int64_t i = 0; i < n; ++i) {
      put_value(f, strip + f.tile_offset(i / 32), for_int8, r, i % 32,
                q[static_cast<std::size_t>(i)]);
    }
    put_scales(f, view.dtype, blocks, tiles, r, strip);
  }
}

void quant_scales(const QuantFormat& f, const std::byte* strip, std::int64_t tile, float* scale,
                  float* offset) {
  const std::byte* s = strip + f.tile_offset(tile) + f.value_bytes;
  const std::byte* header = strip + f.header_offset(tile);
  for (std::int64_t r = 0; r < 16; ++r) {
    offset[r] = 0.0F;
    switch (f.kind) {
      case QuantKind::kScaleOffset:
        offset[r] = f16_to_f32(word_at(s + 32 + 2 * r));
        [[fallthrough]];
      case QuantKind::kScale:
        scale[r] = f16_to_f32(word_at(s + 2 * r));
        break;
      case QuantKind::kScales:
        scale[r] =
            f16_to_f32(word_at(header + 2 * r)) * static_cast<float>(static_cast<unsigned>(s[r]));
        offset[r] = -(f16_to_f32(word_at(header + 32 + 2 * r)) *
                      static_cast<float>(static_cast<unsigned>(s[16 + r])));
        break;
      case QuantKind::kHalfScales:
        for (std::int64_t half = 0; half < 2; ++half) {
          scale[16 * half + r] = f16_to_f32(word_at(header + 2 * r)) *
                                 static_cast<float>(static_cast<std::int8_t>(s[16 * half + r]));
        }
        break;
    }
  }
}

int quant_value(const QuantFormat& f, const std::byte* strip, bool for_int8, std::int64_t row,
                std::int64_t column) {
  const std::byte* tile = strip + f.tile_offset(column / 32);
  const std::int64_t i = column % 32;
  if (for_int8) {
    const std::int64_t group = i / 4, lane = row * 4 + i % 4;
    const auto byte = static_cast<unsigned>(tile[(f.nibbles ? group % 4 : group) * 64 + lane]);
    const unsigned stored = f.nibbles ? (byte >> (group / 4 * 4)) & 15U : byte;
    return static_cast<int>(stored) - f.bias;
  }
  if (f.nibbles) {
    const auto byte = static_cast<unsigned>(tile[row / 4 * 64 + i * 2 + row % 4 / 2]);
    return static_cast<int>((byte >> (row % 2 * 4)) & 15U) - f.bias;
  }
  return static_cast<std::int8_t>(tile[row * 32 + i]);
}

void quant_row(const QuantFormat& f, const std::byte* strip, bool for_int8, std::int64_t row,
               std::int64_t columns, float* out) {
  float scale[32], offset[16];
  for (std::int64_t i = 0; i < columns; ++i) {
    if (i % 32 == 0) quant_scales(f, strip, i / 32, scale, offset);
    const bool second = f.kind == QuantKind::kHalfScales && i % 32 >= 16;
    const float product = scale[(second ? 16 : 0) + row] *
                          static_cast<float>(quant_value(f, strip, for_int8, row, i));
    const bool shifted = f.kind == QuantKind::kScaleOffset || f.kind == QuantKind::kScales;
    out[i] = shifted ? product + offset[row] : product;
  }
}

}  // namespace weft::nn
