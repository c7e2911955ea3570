#include "weft/base/rng.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "weft/base/normals.h"

namespace weft {
namespace {

using Block = std::array<std::uint32_t, 4>;

// Known-answer vectors of Random123 (examples/kat_vectors, philox4x32 10).
TEST(Philox, GivesThePublishedVectors) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U}));
  constexpr std::uint32_t kOnes = 0xffffffffU;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU}));
  EXPECT_EQ(
      philox4x32({0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U}, {0xa4093822U, 0x299f31d0U}),
      (Block{0xd16cfe09U, 0x94fdcceb, 0x5001e420U, 0x24126ea1U}));
}

TEST(Rng, DrawsDependOnEveryCoordinateAndNotOnOrder) {
  const Rng base(7, RngUse::kTest, 1, 2);
  EXPECT_EQ(base.bits(5), Rng(7, RngUse::kTest, 1, 2).bits(5));
  EXPECT_NE(base.block(0), Rng(8, RngUse::kTest, 1, 2).block(0));
  EXPECT_NE(base.block(0), Rng(7, RngUse::kInit, 1, 2).block(0));
  EXPECT_NE(base.block(0), Rng(7, RngUse::kTest, 3, 2).block(0));
  EXPECT_NE(base.block(0), Rng(7, RngUse::kTest, 1, 3).block(0));
  EXPECT_NE(base.block(0), base.block(std::uint64_t{1} << 32));
  Rng walking(7, RngUse::kTest, 1, 2);
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(walking.next_bits(), base.bits(i)) << i;
}

TEST(Rng, UniformsAreFlatAndBelowOne) {
  const Rng rng(1, RngUse::kTest);
  std::vector<int> buckets(16);
  constexpr int kDraws = 160'000;
  for (int i = 0; i < kDraws; ++i) {
    const float u = rng.uniform(i);
    ASSERT_GE(u, 0.0F);
    ASSERT_LT(u, 1.0F);
    ++buckets[static_cast<std::size_t>(u * 16)];
    ASSERT_LT(rng.uniform_double(i), 1.0);
  }
  double chi2 = 0;
  for (int count : buckets) chi2 += std::pow(count - kDraws / 16.0, 2) / (kDraws / 16.0);
  EXPECT_LT(chi2, 37.7);  // 15 degrees of freedom, p = 0.001
}

TEST(Rng, NormalsHaveTheMomentsOfANormal) {
  Rng rng(2, RngUse::kTest);
  constexpr int kDraws = 200'000;
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = rng.next_normal();
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.01);
  EXPECT_NEAR(squares / kDraws, 1, 0.015);
  EXPECT_NEAR(fourth / kDraws, 3, 0.12);
}

TEST(Rng, ManyNormalsAtOnceHaveTheBitsOfOneAtATime) {
  for (const std::size_t count : {0U, 1U, 15U, 16U, 100'003U}) {
    const Rng stream(11, RngUse::kTest, 3, 5);
    Rng one = stream;
    std::vector<float> many(count);
    fill_normals(stream, many);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(many[i]),
                std::bit_cast<std::uint32_t>(one.next_normal()))
          << i << " of " << count;
    }
  }
}

TEST(Rng, NormalsAreBoxMullerOfTheirDraws) {
  Rng rng(3, RngUse::kTest);
  const Rng same = rng;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    const double u = 1.0 - same.bits(2 * i) * 0x1p-32;
    const double turn = same.bits(2 * i + 1) * 0x1p-32;
    const double expected = std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * turn);
    ASSERT_NEAR(rng.next_normal(), expected, 1e-6 * std::max(1.0, std::abs(expected))) << i;
  }
}

TEST(Rng, NextBelowIsUniform) {
  Rng rng(4, RngUse::kTest);
  std::vector<int> counts(3);
  for (int i = 0; i < 30'000; ++i) ++counts[rng.next_below(3)];
  for (int count : counts) EXPECT_NEAR(count, 10'000, 300);
  EXPECT_EQ(rng.next_below(1), 0U);
}

}  // namespace
}  // namespace weft
