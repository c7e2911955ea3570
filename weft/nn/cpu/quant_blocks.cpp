#include "weft/nn/cpu/quant_blocks.h"

#include <cstring>
#include <vector>

#include "weft/base/result.h"

namespace weft::nn {
namespace {

// Bytes of GGML's blocks, as the GGUF specification and ggml-common.h lay them out.
float half_at(const std::byte* p) {
  std::uint16_t h;
  std::memcpy(&h, p, sizeof h);
  return f16_to_f32(h);
}
unsigned byte_at(const std::byte* p, std::int64_t i) { return static_cast<unsigned>(p[i]); }

void unpack_q4(const std::byte* block, bool has_min, std::int64_t index, const QuantRow& to) {
  to.scale[index] = half_at(block);
  if (has_min) to.offset[index] = half_at(block + 2);
  const std::byte* nibbles = block + (has_min ? 4 : 2);
  std::int8_t* q = to.q + index * 32;
  const int bias = has_min ? 0 : 8;
  for (int i = 0; i < 16; ++i) {
    q[i] = static_cast<std::int8_t>(static_cast<int>(byte_at(nibbles, i) & 15U) - bias);
    q[i + 16] = static_cast<std::int8_t>(static_cast<int>(byte_at(nibbles, i) >> 4) - bias);
  }
}

// Q4_K: d, dmin, scales[12], qs[128]; Q5_K: d, dmin, scales[12], qh[32], qs[128].
void unpack_k45(const std::byte* block, bool five_bits, std::int64_t index, const QuantRow& to) {
  const float d = half_at(block), dmin = half_at(block + 2);
  const std::byte* high = block + 16;
  const std::byte* low = five_bits ? block + 48 : block + 16;
  for (int j = 0; j < 8; ++j) {
    unsigned scale = 0, minimum = 0;
    scale_and_min(j, block + 4, scale, minimum);
    to.scale[index * 8 + j] = d * static_cast<float>(scale);
    to.offset[index * 8 + j] = dmin * static_cast<float>(minimum);
    std::int8_t* q = to.q + index * 256 + j * 32;
    for (int i = 0; i < 32; ++i) {
      const unsigned nibble = (byte_at(low, j / 2 * 32 + i) >> (j % 2 * 4)) & 15U;
      const unsigned fifth = five_bits ? ((byte_at(high, i) >> j) & 1U) << 4 : 0U;
      q[i] = static_cast<std::int8_t>(nibble | fifth);
    }
  }
}

// Q6_K: ql[128], qh[64], int8 scales[16], d.
void unpack_q6(const std::byte* block, std::int64_t index, const QuantRow& to) {
  const float d = half_at(block + 208);
  for (int j = 0; j < 16; ++j) {
    const auto scale = static_cast<std::int8_t>(block[192 + j]);
    to.scale[index * 16 + j] = d * static_cast<float>(scale);
  }
  for (int half = 0; half < 2; ++half) {
    const std::byte* low = block + half * 64;
    const std::byte* high = block + 128 + half * 32;
    std::int8_t* q = to.q + index * 256 + half * 128;
    for (int i = 0; i < 32; ++i) {
      for (int quarter = 0; quarter < 4; ++quarter) {
        const unsigned nibble = (byte_at(low, i + quarter % 2 * 32) >> (quarter / 2 * 4)) & 15U;
        const unsigned top = (byte_at(high, i) >> (2 * quarter)) & 3U;
        q[i + quarter * 32] = static_cast<std::int8_t>(static_cast<int>(nibble | (top << 4)) - 32);
      }
    }
  }
}

}  // namespace

void scale_and_min(int j, const std::byte* s, unsigned& scale, unsigned& minimum) {
  if (j < 4) {
    scale = byte_at(s, j) & 63U;
    minimum = byte_at(s, j + 4) & 63U;
  } else {
    scale = (byte_at(s, j + 4) & 15U) | ((byte_at(s, j - 4) >> 6) << 4);
    minimum = (byte_at(s, j + 4) >> 4) | ((byte_at(s, j) >> 6) << 4);
  }
}

void unpack_quant_row(DType type, const std::byte* row, std::int64_t n, const QuantRow& to) {
  const std::int64_t blocks = n / block_elements(type), bytes = block_bytes(type);
  for (std::int64_t i = 0; i < blocks; ++i, row += bytes) {
    switch (type) {
      case DType::kQ4_0:
        unpack_q4(row, false, i, to);
        break;
      case DType::kQ4_1:
        unpack_q4(row, true, i, to);
        break;
      case DType::kQ8_0:
        to.scale[i] = half_at(row);
        std::memcpy(to.q + i * 32, row + 2, 32);
        break;
      case DType::kQ4_K:
        unpack_k45(row, false, i, to);
        break;
      case DType::kQ5_K:
        unpack_k45(row, true, i, to);
        break;
      case DType::kQ6_K:
        unpack_q6(row, i, to);
        break;
      default:
        WEFT_CHECK(false, "{} is not a quantised type", to_string(type));
    }
  }
}

void dequantize_quant_row(DType type, const std::byte* row, std::int64_t n, float* out) {
  std::vector<std::int8_t> q(static_cast<std::size_t>(n));
  std::vector<float> scale(static_cast<std::size_t>(n / 16 + 1));
  std::vector<float> offset(static_cast<std::size_t>(n / 32 + 1));
  unpack_quant_row(type, row, n, {q.data(), scale.data(), offset.data()});
  const std::int64_t group = scale_group(type);
  const int sign = offset_sign(type);
  for (std::int64_t i = 0; i < n; ++i) {
    const float product = scale[static_cast<std::size_t>(i / group)] *
                          static_cast<float>(q[static_cast<std::size_t>(i)]);
    const float shift = offset[static_cast<std::size_t>(i / 32)];
    out[i] = sign == 0 ? product : sign > 0 ? product + shift : product - shift;
  }
}

}  // namespace weft::nn
