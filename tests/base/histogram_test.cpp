#include "weft/base/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "weft/base/rng.h"

namespace weft {
namespace {

// Values over 12 decades of both signs, and some zeros.
std::vector<double> draws(std::uint64_t seed, int count) {
  Rng rng(seed, RngUse::kTest);
  std::vector<double> values;
  for (int i = 0; i < count; ++i) {
    const double magnitude = std::pow(10.0, rng.next_uniform() * 12 - 6);
    const std::uint32_t kind = rng.next_below(10);
    values.push_back(kind == 0 ? 0 : kind < 4 ? -magnitude : magnitude);
  }
  return values;
}

TEST(Histogram, QuantilesKeepTheStatedError) {
  for (const double error : {0.001, 0.01, 0.1}) {
    std::vector<double> values = draws(1, 5000);
    Histogram histogram(error);
    for (const double value : values) histogram.add(value);
    std::ranges::sort(values);
    for (int i = 0; i <= 1000; ++i) {
      const double q = i / 1000.0;
      const auto rank = std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(q * 5000)));
      const double exact = values[rank - 1];
      ASSERT_LE(std::abs(histogram.quantile(q) - exact), error * std::abs(exact) * (1 + 1e-9)) << q;
    }
  }
}

TEST(Histogram, MergingEqualsAddingAll) {
  Histogram all;
  Histogram merged;
  for (std::uint64_t part = 0; part < 4; ++part) {
    Histogram one;
    for (const double value : draws(part, 300)) {
      one.add(value);
      all.add(value);
    }
    merged.merge(one);
  }
  EXPECT_EQ(merged.count(), all.count());
  EXPECT_EQ(merged.min(), all.min());
  EXPECT_EQ(merged.max(), all.max());
  EXPECT_NEAR(merged.sum(), all.sum(), 1e-9 * std::abs(all.sum()));
  for (int i = 0; i <= 100; ++i) EXPECT_EQ(merged.quantile(i / 100.0), all.quantile(i / 100.0));
}

TEST(Histogram, OddValues) {
  Histogram histogram;
  EXPECT_EQ(histogram.quantile(0.5), 0);
  EXPECT_EQ(histogram.mean(), 0);
  histogram.add(std::numeric_limits<double>::quiet_NaN());
  histogram.add(std::numeric_limits<double>::infinity());
  EXPECT_EQ(histogram.count(), 0U);
  EXPECT_EQ(histogram.ignored(), 2U);
  histogram.add(std::numeric_limits<double>::denorm_min());
  histogram.add(std::numeric_limits<double>::max(), 3);
  EXPECT_EQ(histogram.count(), 4U);
  EXPECT_EQ(histogram.quantile(1), std::numeric_limits<double>::max());
  EXPECT_EQ(histogram.quantile(0), std::numeric_limits<double>::denorm_min());
}

}  // namespace
}  // namespace weft
