// Element types of tensors, plain and block-quantised, and their sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "weft/base/result.h"

namespace weft {

// Quantised types are GGML's blocks as GGUF files hold them; a row of `n`
// elements takes n / block_elements(t) blocks of block_bytes(t) bytes.
enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kBool,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

std::string_view to_string(DType type);                         // "F32", "Q4_1", ...
std::optional<DType> dtype_from_string(std::string_view name);  // case-insensitive
std::int64_t block_elements(DType type);                        // 1 for plain types, 32 or 256
std::int64_t block_bytes(DType type);
inline bool is_quantized(DType type) { return block_elements(type) > 1; }

// Bytes of `rows` rows of `columns` elements; fails if a row is not whole blocks
// or the size overflows.
Result<std::int64_t> tensor_bytes(DType type, std::int64_t rows, std::int64_t columns);

// bf16 <-> f32. To bf16 rounds to nearest even; NaN stays NaN (quiet).
inline float bf16_to_f32(std::uint16_t h) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(h) << 16);
}
inline std::uint16_t f32_to_bf16(float f) {
  std::uint32_t u = __builtin_bit_cast(std::uint32_t, f);
  if ((u & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((u >> 16) | 0x40U);
  return static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
}
float f16_to_f32(std::uint16_t h);
std::uint16_t f32_to_f16(float f);

}  // namespace weft
