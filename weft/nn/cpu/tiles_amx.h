// AMX tiles: configuration, and the loads and stores as the kernels use them.
// GCC 12's intrinsics do not tell the compiler that a tile load reads memory, so
// these do.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace weft::nn {
namespace {

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t column_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

inline void load_config(const TileConfig& config) {
  __asm__ volatile("ldtilecfg %0" ::"m"(config));
}

#define WEFT_TILE_LOAD(tile, base, stride)                                        \
  __asm__ volatile("{tileloadd\t(%0,%1,1), %%tmm" #tile "|tileloadd\t%%tmm" #tile \
                   ", [%0+%1*1]}" ::"r"(static_cast<const void*>(base)),          \
                   "r"(static_cast<std::int64_t>(stride))                         \
                   : "memory")
// The same for tiles that are read once before they leave the first-level cache.
#define WEFT_TILE_STREAM(tile, base, stride)                                          \
  __asm__ volatile("{tileloaddt1\t(%0,%1,1), %%tmm" #tile "|tileloaddt1\t%%tmm" #tile \
                   ", [%0+%1*1]}" ::"r"(static_cast<const void*>(base)),              \
                   "r"(static_cast<std::int64_t>(stride))                             \
                   : "memory")
#define WEFT_TILE_STORE(tile, base, stride) \
  _tile_stored(tile, static_cast<void*>(base), static_cast<std::int64_t>(stride))

}  // namespace
}  // namespace weft::nn
