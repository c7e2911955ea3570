#include "weft/rl/advantage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "weft/base/rng.h"

namespace weft::rl {
namespace {

std::vector<float> random_rewards(std::uint64_t seed, std::size_t n) {
  Rng rng(seed, RngUse::kTest);
  std::vector<float> r(n);
  for (float& x : r) x = static_cast<float>(rng.next_below(5)) * 0.25F + 0.1F * rng.next_uniform();
  return r;
}

// Straight from the definitions, one sample at a time, over everybody else.
double scalar_reference(AdvantageKind kind, const std::vector<float>& r,
                        const std::vector<std::int32_t>& g, std::size_t i) {
  std::vector<long double> mine, others;
  for (std::size_t j = 0; j < r.size(); ++j) {
    if (g[j] != g[i]) continue;
    mine.push_back(r[j]);
    if (j != i) others.push_back(r[j]);
  }
  const auto mean = [](const std::vector<long double>& v) {
    return std::accumulate(v.begin(), v.end(), 0.0L) / static_cast<long double>(v.size());
  };
  if (kind == AdvantageKind::kRloo) return static_cast<double>(r[i] - mean(others));
  const long double m = mean(mine);
  if (kind != AdvantageKind::kGrpo) return static_cast<double>(r[i] - m);
  long double pairs = 0;  // variance as half the mean squared difference of all pairs
  for (auto a : mine)
    for (auto b : mine) pairs += (a - b) * (a - b);
  const auto n = static_cast<long double>(mine.size());
  return static_cast<double>((r[i] - m) / (std::sqrt(pairs / (2 * n * (n - 1))) + 1e-6L));
}

TEST(Advantage, GroupKindsMatchTheScalarReference) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::size_t groups = 5, size = 2 + seed % 7;
    const auto r = random_rewards(seed, groups * size);
    std::vector<std::int32_t> g(r.size());
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = static_cast<std::int32_t>(i * 7 % groups);
    for (auto kind : {AdvantageKind::kGrpo, AdvantageKind::kDrGrpo, AdvantageKind::kRloo,
                      AdvantageKind::kReinforceBaseline}) {
      const auto a = group_advantages(kind, r, g);
      for (std::size_t i = 0; i < r.size(); ++i)
        EXPECT_NEAR(a[i], scalar_reference(kind, r, g, i), 1e-5) << to_string(kind) << " " << seed;
    }
  }
}

TEST(Advantage, RlooIsTheScaledDifferenceFromTheMean) {
  const std::vector<float> r = {0, 1, 1, 0.5F};
  const std::vector<std::int32_t> g = {3, 3, 3, 3};
  const auto rloo = group_advantages(AdvantageKind::kRloo, r, g);
  const auto centred = group_advantages(AdvantageKind::kDrGrpo, r, g);
  for (std::size_t i = 0; i < r.size(); ++i) EXPECT_NEAR(rloo[i], 4.0 / 3.0 * centred[i], 1e-6);
}

TEST(Advantage, EqualRewardsGiveNoAdvantageAndAGroupOfOneKeepsItsReward) {
  const std::vector<float> r = {0.7F, 0.7F, 0.7F, 0.25F};
  const std::vector<std::int32_t> g = {0, 0, 0, 1};
  for (auto kind : {AdvantageKind::kGrpo, AdvantageKind::kDrGrpo, AdvantageKind::kRloo}) {
    const auto a = group_advantages(kind, r, g);
    EXPECT_EQ(a[0], 0.0F);
    EXPECT_NEAR(a[3], 0.25F, 1e-6);
  }
}

TEST(Advantage, GaeMatchesTheSumOfDiscountedDeltas) {
  const std::vector<std::int64_t> offsets = {0, 4, 5, 9};
  const auto r = random_rewards(1, 9), v = random_rewards(2, 9);
  for (auto [gamma, lambda] : {std::pair{1.0, 1.0}, {0.99, 0.95}, {0.5, 0.0}}) {
    const Gae gae = generalized_advantages(offsets, r, v, gamma, lambda);
    for (std::size_t s = 0; s + 1 < offsets.size(); ++s)
      for (std::int64_t t = offsets[s]; t < offsets[s + 1]; ++t) {
        double expected = 0;
        for (std::int64_t u = t; u < offsets[s + 1]; ++u) {
          const double next = u + 1 < offsets[s + 1] ? v[static_cast<std::size_t>(u + 1)] : 0.0;
          expected +=
              std::pow(gamma * lambda, static_cast<double>(u - t)) *
              (r[static_cast<std::size_t>(u)] + gamma * next - v[static_cast<std::size_t>(u)]);
        }
        const auto k = static_cast<std::size_t>(t);
        EXPECT_NEAR(gae.advantages[k], expected, 1e-5);
        EXPECT_NEAR(gae.returns[k], expected + v[k], 1e-5);
      }
  }
}

TEST(Advantage, WhiteningOverShardsEqualsWhiteningTheWhole) {
  for (std::size_t shards : {1U, 2U, 4U}) {
    auto whole = random_rewards(9, 64), split = whole;
    whiten(whole, moments(whole));
    Moments all;
    const std::size_t n = split.size() / shards;
    for (std::size_t s = 0; s < shards; ++s) all.merge(moments({split.data() + s * n, n}));
    for (std::size_t s = 0; s < shards; ++s) whiten({split.data() + s * n, n}, all);
    double mean = 0, squares = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_NEAR(whole[i], split[i], 1e-6);
      mean += split[i] / 64;
      squares += split[i] * split[i] / 63;
    }
    EXPECT_NEAR(mean, 0, 1e-6);
    EXPECT_NEAR(squares, 1, 1e-4);
  }
}

}  // namespace
}  // namespace weft::rl
