#include "bench/machine/peak.h"
#include "weft/nn/cpu/tiles_amx.h"

namespace weft::bench {
namespace {

// Tiles that hold data: on tiles still in the state that LDTILECFG leaves, products run
// up to four times as fast as on any others where the core's other hardware thread is
// busy, which no program can use.
void configure_tiles() {
  nn::TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.column_bytes[t] = 64;
    config.rows[t] = 16;
  }
  nn::load_config(config);
  alignas(64) std::uint8_t data[1024];
  for (std::size_t i = 0; i < sizeof data; ++i) {
    data[i] = static_cast<std::uint8_t>(i % 2 == 0 ? i * 37 : 0x3f - i % 3);  // bf16 near 1
  }
  WEFT_TILE_LOAD(0, data, 64);
  WEFT_TILE_LOAD(1, data, 64);
  WEFT_TILE_LOAD(2, data, 64);
  WEFT_TILE_LOAD(3, data, 64);
  WEFT_TILE_LOAD(4, data, 64);
  WEFT_TILE_LOAD(5, data, 64);
  WEFT_TILE_LOAD(6, data, 64);
  WEFT_TILE_LOAD(7, data, 64);
}

}  // namespace

void spin_tiles_bf16_amx(std::int64_t n) {
  configure_tiles();
  for (std::int64_t i = 0; i < n; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

void spin_tiles_int8_amx(std::int64_t n) {
  configure_tiles();
  for (std::int64_t i = 0; i < n; ++i) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
}

}  // namespace weft::bench
