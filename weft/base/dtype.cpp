#include "weft/base/dtype.h"

#include <array>

namespace weft {
namespace {

struct Layout {
  DType type;
  std::string_view name;
  std::int64_t elements;
  std::int64_t bytes;
};

// Block sizes of the quantised types: ggml-common.h, block_q8_0 ... block_q6_K.
constexpr std::array<Layout, 16> kLayouts = {{
    {DType::kF32, "F32", 1, 4},
    {DType::kF16, "F16", 1, 2},
    {DType::kBF16, "BF16", 1, 2},
    {DType::kF64, "F64", 1, 8},
    {DType::kI8, "I8", 1, 1},
    {DType::kI16, "I16", 1, 2},
    {DType::kI32, "I32", 1, 4},
    {DType::kI64, "I64", 1, 8},
    {DType::kU8, "U8", 1, 1},
    {DType::kBool, "BOOL", 1, 1},
    {DType::kQ8_0, "Q8_0", 32, 34},
    {DType::kQ4_0, "Q4_0", 32, 18},
    {DType::kQ4_1, "Q4_1", 32, 20},
    {DType::kQ4_K, "Q4_K", 256, 144},
    {DType::kQ5_K, "Q5_K", 256, 176},
    {DType::kQ6_K, "Q6_K", 256, 210},
}};

const Layout& layout(DType type) {
  const auto index = static_cast<std::size_t>(type);
  WEFT_CHECK(index < kLayouts.size() && kLayouts[index].type == type, "DType {}", index);
  return kLayouts[index];
}

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

std::string_view to_string(DType type) { return layout(type).name; }

std::optional<DType> dtype_from_string(std::string_view name) {
  for (const Layout& entry : kLayouts) {
    if (entry.name.size() != name.size()) continue;
    bool equal = true;
    for (std::size_t i = 0; i < name.size() && equal; ++i) {
      equal = upper(name[i]) == upper(entry.name[i]);
    }
    if (equal) return entry.type;
  }
  return std::nullopt;
}

std::int64_t block_elements(DType type) { return layout(type).elements; }
std::int64_t block_bytes(DType type) { return layout(type).bytes; }

Result<std::int64_t> tensor_bytes(DType type, std::int64_t rows, std::int64_t columns) {
  const Layout& entry = layout(type);
  if (rows < 0 || columns < 0) {
    return fail(ErrorCode::kOutOfRange, "a tensor of {} x {} elements has a negative size", rows,
                columns);
  }
  if (columns % entry.elements != 0) {
    return fail(ErrorCode::kInvalidArgument,
                "rows of {} elements are not whole {} blocks of {} elements", columns, entry.name,
                entry.elements);
  }
  std::int64_t row_bytes = 0;
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(columns / entry.elements, entry.bytes, &row_bytes) ||
      __builtin_mul_overflow(row_bytes, rows, &bytes)) {
    return fail(ErrorCode::kOutOfRange, "the size of a {} x {} {} tensor overflows", rows, columns,
                entry.name);
  }
  return bytes;
}

float f16_to_f32(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000U) << 16;
  const std::uint32_t exponent = (h >> 10) & 0x1fU;
  std::uint32_t mantissa = h & 0x3ffU;
  if (exponent == 31) {  // infinity, or NaN made quiet as the hardware does
    return __builtin_bit_cast(
        float, sign | 0x7f800000U | (mantissa << 13) | (mantissa != 0 ? 0x400000U : 0U));
  }
  if (exponent != 0) {
    return __builtin_bit_cast(float, sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  if (mantissa == 0) return __builtin_bit_cast(float, sign);
  // Subnormal: value = mantissa * 2^-24, exact in f32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
  return sign != 0 ? -magnitude : magnitude;
}

std::uint16_t f32_to_f16(float f) {
  const auto bits = __builtin_bit_cast(std::uint32_t, f);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    return static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU));
  }
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // >= 65520
  if (magnitude >= 0x38800000U) {  // normal: rebias, then round to nearest even
    const std::uint32_t rebased = magnitude - (112U << 23);
    return static_cast<std::uint16_t>(sign | ((rebased + 0xfffU + ((rebased >> 13) & 1U)) >> 13));
  }
  if (magnitude <= 0x33000000U) return sign;  // at most half of the least subnormal: to even, zero
  const std::uint32_t exponent = magnitude >> 23;
  const std::uint32_t mantissa = (magnitude & 0x7fffffU) | 0x800000U;
  const std::uint32_t shift = 126U - exponent;
  const std::uint32_t half = 1U << (shift - 1);
  const std::uint32_t rest = mantissa & ((1U << shift) - 1);
  std::uint32_t result = mantissa >> shift;
  if (rest > half || (rest == half && (result & 1U) != 0)) ++result;
  return static_cast<std::uint16_t>(sign | result);
}

}  // namespace weft
