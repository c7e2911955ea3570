// Quantised weights as the kernels read them. A tile is 16 rows by 32 columns (a
// block of 32 each); tiles of a strip follow in ascending columns, in groups that
// share a header where the type has scales of scales. Plain data only: included
// by files of all instruction levels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::nn {

enum class QuantKind : std::uint8_t {
  kScale,        // w = d * q              tile ends with f16 d[16]
  kScaleOffset,  // w = d * q + m          f16 d[16], m[16]
  kScales,       // w = (d * sc) * q - dmin * mn   u8 sc[16], mn[16]; header f16 d[16], dmin[16]
  kHalfScales,   // w = (d * sc) * q per 16 columns  i8 sc[2][16]; header f16 d[16]
};

// Values of a tile. kBF16 reads rows: nibble tiles are four vectors of 32 words,
// word i of vector g holding column i of rows 4g .. 4g + 3 from its low bits up;
// byte tiles are [16 rows][32] signed. kInt8 reads columns: bytes are [8][16 rows][4
// columns], unsigned; nibble tiles hold groups 0-3 in the low and 4-7 in the high
// halves of [4][16][4].
struct QuantFormat {
  QuantKind kind;
  bool nibbles;
  std::int32_t bias;  // subtracted from a nibble, or from an unsigned byte of kInt8
  std::int32_t group_tiles;
  std::int32_t header_bytes;
  std::int32_t value_bytes;
  std::int32_t tile_bytes;

  constexpr std::int64_t strip_bytes(std::int64_t columns) const {
    return columns / 32 / group_tiles * (header_bytes + group_tiles * tile_bytes);
  }
  constexpr std::int64_t tile_offset(std::int64_t tile) const {
    const std::int64_t group = tile / group_tiles;
    return group * (header_bytes + group_tiles * tile_bytes) + header_bytes +
           tile % group_tiles * tile_bytes;
  }
  constexpr std::int64_t header_offset(std::int64_t tile) const {
    return tile / group_tiles * (header_bytes + group_tiles * tile_bytes);
  }
};

}  // namespace weft::nn
