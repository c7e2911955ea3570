// Layouts of GGML's quantised blocks, as in files (ggml-common.h). All have
// alignment 2 at most and no padding.
#pragma once

#include <cstdint>

namespace weft::model {

struct BlockQ8_0 {
  std::uint16_t d;  // f16
  std::int8_t qs[32];
};
struct BlockQ4_0 {
  std::uint16_t d;
  std::uint8_t qs[16];  // element j low, j + 16 high; minus 8
};
struct BlockQ4_1 {
  std::uint16_t d, m;
  std::uint8_t qs[16];
};
// 8 groups of 32: value = d * scale * q - dmin * min, 6-bit scales and mins.
struct BlockQ4_K {
  std::uint16_t d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qs[128];
};
struct BlockQ5_K {
  std::uint16_t d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qh[32];  // bit g of byte l: fifth bit of element l of group g
  std::uint8_t qs[128];
};
// 16 groups of 16: value = d * scale * (q - 32).
struct BlockQ6_K {
  std::uint8_t ql[128];
  std::uint8_t qh[64];
  std::int8_t scales[16];
  std::uint16_t d;
};
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);

struct ScaleMin {
  float scale, min;
};
// The 6-bit scale and min of group `j` (0 to 7) out of 12 packed bytes.
inline ScaleMin scale_min_k4(int j, const std::uint8_t* q) {
  if (j < 4) return {static_cast<float>(q[j] & 63), static_cast<float>(q[j + 4] & 63)};
  return {static_cast<float>((q[j + 4] & 0xf) | ((q[j - 4] >> 6) << 4)),
          static_cast<float>((q[j + 4] >> 4) | ((q[j] >> 6) << 4))};
}

}  // namespace weft::model
