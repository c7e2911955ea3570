#include "weft/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace weft {
namespace {

TEST(DType, NamesGoBothWays) {
  for (int i = 0; i <= static_cast<int>(DType::kQ6_K); ++i) {
    const auto type = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_string(to_string(type)), type);
  }
  EXPECT_EQ(dtype_from_string("q4_k"), DType::kQ4_K);
  EXPECT_EQ(dtype_from_string("bf16"), DType::kBF16);
  EXPECT_EQ(dtype_from_string("Q4_2"), std::nullopt);
}

TEST(DType, SizesRefusePartialBlocksAndOverflow) {
  EXPECT_EQ(tensor_bytes(DType::kQ4_1, 3, 64).value(), 3 * 2 * 20);
  EXPECT_EQ(tensor_bytes(DType::kBF16, 2, 5).value(), 20);
  EXPECT_EQ(tensor_bytes(DType::kQ8_0, 1, 33).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(tensor_bytes(DType::kF32, std::int64_t{1} << 40, std::int64_t{1} << 40).error().code,
            ErrorCode::kOutOfRange);
  EXPECT_EQ(tensor_bytes(DType::kF32, -1, 4).error().code, ErrorCode::kOutOfRange);
}

TEST(Float16, EveryHalfSurvivesTheRoundTrip) {
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const float f = f16_to_f32(static_cast<std::uint16_t>(h));
    if (std::isnan(f)) {
      EXPECT_EQ(f32_to_f16(f), h | 0x200U);
    } else {
      ASSERT_EQ(f32_to_f16(f), h) << f;
    }
  }
}

TEST(Float16, RoundsToNearestEven) {
  // Between each two neighbouring finite halves: the exact middle goes to the
  // even one, anything beyond it to the nearer one.
  for (std::uint32_t h = 0; h < 0x7bff; ++h) {
    const float lower = f16_to_f32(static_cast<std::uint16_t>(h));
    const float upper = f16_to_f32(static_cast<std::uint16_t>(h + 1));
    const float middle = lower + (upper - lower) / 2;
    ASSERT_EQ(f32_to_f16(middle), h % 2 == 0 ? h : h + 1);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0F)), h);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 1e9F)), h + 1);
    ASSERT_EQ(f32_to_f16(-middle), 0x8000U | (h % 2 == 0 ? h : h + 1));
  }
  EXPECT_EQ(f32_to_f16(65519.996F), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7c00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::infinity()), 0x7c00);
}

TEST(BFloat16, RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(f32_to_bf16(1.0F), 0x3f80);
  EXPECT_EQ(f32_to_bf16(__builtin_bit_cast(float, 0x3f808000U)), 0x3f80);
  EXPECT_EQ(f32_to_bf16(__builtin_bit_cast(float, 0x3f818000U)), 0x3f82);
  EXPECT_EQ(f32_to_bf16(__builtin_bit_cast(float, 0x7f7fffffU)), 0x7f80);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(__builtin_bit_cast(float, 0x7f800001U)))));
}

}  // namespace
}  // namespace weft
