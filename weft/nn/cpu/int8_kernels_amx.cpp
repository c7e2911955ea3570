// int8 products by TDPBSSD for 16 rows or more. A block of 32 columns is one
// instruction for 16 rows and 16 outputs, exact in 32 bits, so the sums over blocks,
// in the order of the VNNI kernel, have its bits.
//
// Limit: a block of 16 x 16 results takes the tile unit 16 cycles, but its scaling
// (convert, scale x scale, multiply-add, and one more for offsets) 48 to 64 vector
// instructions, two a cycle: 24 to 32 cycles for 16 Ki operations, some 0.6 of what
// bf16 tiles reach and 0.3 of int8 tiles without scales.
#include <immintrin.h>

#include "weft/nn/cpu/aligned_buffer.h"
#include "weft/nn/cpu/dequantize_avx512.h"
#include "weft/nn/cpu/int8_kernels.h"
#include "weft/nn/cpu/tiles_amx.h"

namespace weft::nn {
namespace {

// Fewer rows than this leave part of a tile empty; VNNI is faster (1.2 to 1.5 times at 8).
constexpr std::int64_t kLeastRows = 16;

// A strip made ready: signed weights [block][8][16][4] and the blocks' scales
// ([16], for kHalfScales [2][16]) and offsets [16].
struct ReadyStrip {
  std::int8_t* weights;
  float* scales;   // [block][32]
  float* offsets;  // [block][16]
};

template <bool kNibbles>
void make_ready(const Int8Block& b, const std::byte* strip, const ReadyStrip& to) {
  const QuantFormat f = b.format;
  const std::byte* header = strip;
  const std::byte* tile = strip + f.header_bytes;
  std::int64_t in_group = 0;
  const __m512i low_bits = _mm512_set1_epi8(15);
  const __m512i bias = _mm512_set1_epi8(static_cast<char>(f.bias));
  for (std::int64_t block = 0; block < b.blocks; ++block) {
    fetch_ahead(tile, f.tile_bytes);
    std::int8_t* out = to.weights + block * 512;
    for (int g = 0; g < (kNibbles ? 4 : 8); ++g) {
      const __m512i v = _mm512_loadu_si512(tile + g * 64);
      if constexpr (kNibbles) {
        _mm512_store_si512(out + g * 64, _mm512_sub_epi8(_mm512_and_si512(v, low_bits), bias));
        _mm512_store_si512(
            out + (g + 4) * 64,
            _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(v, 4), low_bits), bias));
      } else {
        _mm512_store_si512(out + g * 64, _mm512_sub_epi8(v, bias));
      }
    }
    tile_scales(f, header, tile + f.value_bytes, to.scales + block * 32, to.offsets + block * 16);
    tile += f.tile_bytes;
    if (++in_group == f.group_tiles) {
      in_group = 0;
      header = tile;
      tile += f.header_bytes;
    }
  }
}

// Results are stored this many blocks before they are scaled, so that a vector
// load does not wait for a tile store.
constexpr std::int64_t kLag = 2;

// 16 rows (the last ones are computed and dropped where there are fewer) by one strip.
template <bool kShifted, bool kHalves>
inline void row_tile(const Int8Block& b, const ReadyStrip& strip, std::int64_t row,
                     std::int64_t rows, std::int64_t s) {
  constexpr std::int64_t kParts = kHalves ? 2 : 1;
  alignas(64) std::int32_t ring[2 * kLag][kParts][256];
  const std::int8_t* q = b.q + row * b.blocks * 32;
  const float* x_scale = b.scale + row * b.blocks;
  const float* x_total = b.totals + row * b.blocks;
  __m512 sums[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) sums[r] = _mm512_setzero_ps();
  for (std::int64_t block = 0; block < b.blocks + kLag; ++block) {
    if (block < b.blocks) {
      std::int32_t* to = ring[block % (2 * kLag)][0];
      const std::int8_t* w = strip.weights + block * 512;
      _tile_zero(0);
      WEFT_TILE_LOAD(2, q + block * 32, b.blocks * 32);
      WEFT_TILE_LOAD(4, w, 64);
      _tile_dpbssd(0, 2, 4);
      WEFT_TILE_STORE(0, to, 64);
      if constexpr (kHalves) {
        _tile_zero(1);
        WEFT_TILE_LOAD(3, q + block * 32 + 16, b.blocks * 32);
        WEFT_TILE_LOAD(5, w + 256, 64);
        _tile_dpbssd(1, 3, 5);
        WEFT_TILE_STORE(1, to + 256, 64);
      }
    }
    if (block < kLag) continue;
    const std::int64_t done = block - kLag;
    const std::int32_t* from = ring[done % (2 * kLag)][0];
    const __m512 scale = _mm512_load_ps(strip.scales + done * 32);
    const __m512 second = _mm512_load_ps(strip.scales + done * 32 + (kHalves ? 16 : 0));
    const __m512 offset =
        kShifted ? _mm512_load_ps(strip.offsets + done * 16) : _mm512_setzero_ps();
    const float* xs = x_scale + done;
    const float* xt = x_total + done;
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      const __m512 factor = _mm512_set1_ps(*xs);
      sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(from + r * 16)),
                                _mm512_mul_ps(scale, factor), sums[r]);
      if constexpr (kHalves) {
        sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(from + 256 + r * 16)),
                                  _mm512_mul_ps(second, factor), sums[r]);
      }
      if constexpr (kShifted) sums[r] = _mm512_fmadd_ps(offset, _mm512_set1_ps(*xt), sums[r]);
      // The rows beyond the last read its scales again.
      if (r + 1 < rows) {
        xs += b.blocks;
        xt += b.blocks;
      }
    }
  }
  const __mmask16 mask = first_lanes(b.columns - s * 16);
  const __m512 bias =
      b.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, b.bias + s * 16);
  float* y = b.y + row * b.ldy + s * 16;
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) {
    if (r >= rows) break;
    const __m512 v = b.bias == nullptr ? sums[r] : _mm512_add_ps(sums[r], bias);
    _mm512_mask_storeu_ps(y + r * b.ldy, mask, v);
  }
}

void configure(bool halves, std::int64_t rows) {
  TileConfig config;
  for (int t = 0; t < 6; ++t) {
    const bool x = t == 2 || t == 3, w = t > 3;
    config.column_bytes[t] = x ? (halves ? 16 : 32) : 64;
    config.rows[t] = w ? (halves ? 4 : 8) : static_cast<std::uint8_t>(rows);
  }
  load_config(config);
}

template <bool kNibbles, bool kShifted, bool kHalves>
void strips(const Int8Block& b) {
  thread_local Scratch scratch;
  auto* memory = scratch.get<std::byte>(static_cast<std::size_t>(b.blocks * (512 + 192)));
  ReadyStrip ready{};
  ready.weights = reinterpret_cast<std::int8_t*>(memory);
  ready.scales = reinterpret_cast<float*>(memory + b.blocks * 512);
  ready.offsets = ready.scales + b.blocks * 32;
  std::int64_t configured = 0;
  for (std::int64_t s = 0; s < b.strips; ++s) {
    make_ready<kNibbles>(b, b.w + s * b.strip_bytes, ready);
    for (std::int64_t row = 0; row < b.rows; row += 16) {
      const std::int64_t rows = b.rows - row < 16 ? b.rows - row : 16;
      if (rows != configured) configure(kHalves, rows);
      configured = rows;
      row_tile<kShifted, kHalves>(b, ready, row, rows, s);
    }
  }
  _tile_release();
}

void product_int8_amx(const Int8Block& b) {
  if (b.rows < kLeastRows) {
    kInt8KernelsAvx512.product(b);
    return;
  }
  switch (b.format.kind) {
    case QuantKind::kScale:
      b.format.nibbles ? strips<true, false, false>(b) : strips<false, false, false>(b);
      break;
    case QuantKind::kScaleOffset:
      strips<true, true, false>(b);
      break;
    case QuantKind::kScales:
      b.format.nibbles ? strips<true, true, false>(b) : strips<false, true, false>(b);
      break;
    case QuantKind::kHalfScales:
      strips<false, false, true>(b);
      break;
  }
}

void quantize(const float* x, std::int64_t n, std::int8_t* q, float* scale, std::int32_t* sums) {
  kInt8KernelsAvx512.quantize(x, n, q, scale, sums);
}

}  // namespace

const Int8Kernels kInt8KernelsAmx = {quantize, product_int8_amx};

}  // namespace weft::nn
