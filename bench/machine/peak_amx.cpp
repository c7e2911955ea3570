#include "bench/machine/peak.h"
#include "weft/nn/cpu/tiles_amx.h"

namespace weft::bench {
namespace {

void configure_tiles() {
  nn::TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.column_bytes[t] = 64;
    config.rows[t] = 16;
  }
  nn::load_config(config);
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
