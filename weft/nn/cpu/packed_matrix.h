// What a PackedMatrix holds. Layouts do not depend on the instruction level, so
// a matrix packed once runs at any of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/nn/cpu/aligned_buffer.h"
#include "weft/nn/matmul.h"

namespace weft::nn {

constexpr std::int64_t kStrip = 16;  // outputs of a strip: a lane or tile column is one output
constexpr std::int64_t kChunk = 32;  // columns of a bf16 tile, and of a quantised block
constexpr std::int64_t kTileElements = kStrip * kChunk;
constexpr std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// Weights lie in strips of 16 outputs. Rows and columns beyond the matrix are zero.
enum class Layout : std::uint8_t {
  kF32,           // [strip][in][16] f32
  kBF16,          // [strip][in/32][16 pairs][16 outputs][2] bf16: AMX's B tile, 1 KiB
  kQuantRows,     // [strip] of quantised tiles for bf16 products (quant_tiles.h)
  kQuantColumns,  // the same for int8 products
};

// Consecutive rows in one layout.
struct Part {
  Layout layout = Layout::kF32;
  DType dtype = DType::kF32;
  std::int64_t first_row = 0, rows = 0;
  std::int64_t strips = 0;
  std::int64_t strip_bytes = 0;
  std::size_t offset = 0;  // of strip 0 in the buffer
};

struct PackedMatrix::Data {
  std::int64_t out = 0, in = 0;
  Compute compute = Compute::kF32;
  DType dtype = DType::kF32;
  std::vector<Part> parts;
  AlignedBuffer buffer;

  const std::byte* strip(const Part& part, std::int64_t index) const {
    return buffer.data() + part.offset + static_cast<std::size_t>(index * part.strip_bytes);
  }
  std::byte* strip(const Part& part, std::int64_t index) {
    return buffer.data() + part.offset + static_cast<std::size_t>(index * part.strip_bytes);
  }
};

inline bool is_quantised(Layout layout) {
  return layout == Layout::kQuantRows || layout == Layout::kQuantColumns;
}

}  // namespace weft::nn
