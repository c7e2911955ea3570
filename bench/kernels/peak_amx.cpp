#include "bench/kernels/peak.h"
#include "weft/nn/cpu/tiles_amx.h"

namespace weft::nn {

void spin_tiles_amx(std::int64_t n) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.column_bytes[t] = 64;
    config.rows[t] = 16;
  }
  load_config(config);
  for (std::int64_t i = 0; i < n; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

}  // namespace weft::nn
