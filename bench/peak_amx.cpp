#include <immintrin.h>

#include <array>
#include <cstring>

#include "bench/peak.h"

namespace weft::bench {
namespace {

// Eight tiles of 16 rows of 64 bytes: four sums, two left and two right factors.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::array<std::uint8_t, 14> reserved{};
  std::array<std::uint16_t, 16> row_bytes{};
  std::array<std::uint8_t, 16> rows{};
};

void configure() {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[static_cast<std::size_t>(i)] = 64;
    config.rows[static_cast<std::size_t>(i)] = 16;
  }
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
}

void finish(float* sink) {
  alignas(64) std::array<float, 256> out{};
  _tile_stored(0, out.data(), 64);
  sink[0] += out[0];
  _tile_release();
}

}  // namespace

double peak_bf16_amx(std::int64_t rounds, float* sink) {
  configure();
  for (std::int64_t r = 0; r < rounds; ++r) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  finish(sink);
  return static_cast<double>(rounds) * 4 * 16 * 16 * 32 * 2;
}

double peak_int8_amx(std::int64_t rounds, float* sink) {
  configure();
  for (std::int64_t r = 0; r < rounds; ++r) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  finish(sink);
  return static_cast<double>(rounds) * 4 * 16 * 16 * 64 * 2;
}

}  // namespace weft::bench
