// Estimators against synthetic samples of known parameters, and special functions against
// published values.
#include "weft/workload/distribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "weft/workload/special_functions.h"
#include "weft/workload/stats.h"

namespace weft::workload {
namespace {

constexpr int kSample = 100'000;

std::vector<double> sample(const Distribution& d, std::uint64_t seed = 1, int n = kSample) {
  Rng rng(seed, RngUse::kTest);
  std::vector<double> out;
  for (int i = 0; i < n; ++i) out.push_back(d.draw(rng));
  return out;
}

Distribution make(const char* text) {
  auto d = Distribution::parse(text);
  EXPECT_TRUE(d.has_value()) << text << ": " << (d ? "" : d.error().message);
  return d.value_or(Distribution{});
}

// Values of Abramowitz and Stegun, tables 6.1, 6.4, 26.1, 26.10, and of closed forms.
TEST(SpecialFunctions, KnownValues) {
  EXPECT_NEAR(digamma(1), -0.57721566490153286, 1e-13);
  EXPECT_NEAR(digamma(0.5), -1.9635100260214235, 1e-13);
  EXPECT_NEAR(trigamma(1), 1.6449340668482264, 1e-13);
  EXPECT_NEAR(trigamma(0.25), 17.1973291545071110, 1e-11);
  EXPECT_NEAR(gamma_p(1, 2), 1 - std::exp(-2.0), 1e-14);
  EXPECT_NEAR(gamma_p(0.5, 0.5), std::erf(std::sqrt(0.5)), 1e-14);
  EXPECT_NEAR(gamma_p(3, 10), 1 - std::exp(-10.0) * (1 + 10 + 50), 1e-14);
  EXPECT_NEAR(normal_cdf(1.959963984540054), 0.975, 1e-14);
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-12);
  EXPECT_NEAR(student_two_sided(2.228138851964939, 10), 0.05, 1e-11);
  EXPECT_NEAR(student_quantile_two_sided(0.05, 1), 12.706204736174698, 1e-9);
}

// The score equations that the maximum likelihood must meet, whatever the code does.
TEST(Distribution, GammaAndWeibullFitsWithinThreePercent) {
  for (const double shape : {0.25, 0.5, 1.0, 2.0}) {
    const auto gamma =
        fit_gamma(sample({.family = Family::kGamma, .a = shape, .b = 3, .table = {}}));
    ASSERT_TRUE(gamma.has_value());
    EXPECT_NEAR(gamma->a / shape, 1, 0.03);
    EXPECT_NEAR(gamma->b / 3, 1, 0.03);
    const auto weibull =
        fit_weibull(sample({.family = Family::kWeibull, .a = shape, .b = 3, .table = {}}));
    ASSERT_TRUE(weibull.has_value());
    EXPECT_NEAR(weibull->a / shape, 1, 0.03);
    EXPECT_NEAR(weibull->b / 3, 1, 0.03);
  }
}

TEST(Distribution, OtherFitsFindTheirParameters) {
  const auto lognormal = fit_lognormal(sample(make("lognormal:mu=4.82,sigma=1.25")));
  EXPECT_NEAR(lognormal->a, 4.82, 0.02);
  EXPECT_NEAR(lognormal->b, 1.25, 0.02);
  const auto zipf = fit_zipf(sample(make("zipf:theta=1.1,max=1024")));
  EXPECT_NEAR(zipf->a, 1.1, 0.01);
  EXPECT_EQ(zipf->b, 1024);
  EXPECT_NEAR(fit_geometric(sample(make("geometric:mean=4.18")))->a * 4.18, 1, 0.02);
  const auto counts = fit_negative_binomial(sample(make("negative-binomial:r=2.5,p=0.1")));
  EXPECT_NEAR(counts->a, 2.5, 0.1);
  EXPECT_NEAR(counts->b, 0.1, 0.004);
  Distribution mixture{.family = Family::kHyperexponential, .table = {0.9, 0.1, 0.1, 5.0}};
  const auto found = fit_hyperexponential(sample(mixture), 2);
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(found->table[0], 0.9, 0.01);
  EXPECT_NEAR(found->table[1], 0.1, 0.003);
  EXPECT_NEAR(found->table[3], 5.0, 0.2);
}

TEST(Distribution, DrawsHaveTheMomentsAndTheDistributionThatTheyName) {
  for (const char* text :
       {"exponential:mean=2", "gamma:shape=0.25,scale=2", "gamma:shape=40,mean=3",
        "weibull:shape=0.7,scale=2", "lognormal:mu=1,sigma=0.5", "zipf:theta=1.1,max=1024",
        "zipf:theta=0,max=10", "zipf:theta=1,max=100", "geometric:mean=3",
        "negative-binomial:r=0.8,p=0.2", "negative-binomial:r=400,p=0.5", "fixed:7"}) {
    const Distribution d = make(text);
    auto x = sample(d, 3);
    const auto s = summarise(x);
    const double error = std::sqrt(d.variance() / kSample);
    EXPECT_NEAR(s.mean, d.mean(), 4.5 * error + 1e-12) << text;
    EXPECT_NEAR(s.std * s.std, d.variance(), 0.1 * d.variance() + 1e-12) << text;
    if (d.family == Family::kConstant) continue;
    std::ranges::sort(x);
    if (d.family == Family::kNegativeBinomial || d.family == Family::kZipf) {
      x.resize(2000);  // their cdf is a sum; the lowest values suffice
      for (std::size_t i = 0; i + 1 < x.size(); ++i) {
        if (x[i] == x[i + 1]) continue;
        EXPECT_NEAR(static_cast<double>(i + 1) / kSample, d.cdf(x[i]), 0.006) << text;
      }
      continue;
    }
    EXPECT_GT(ks_p_value(ks_distance(x, [&](double v) { return d.cdf(v); }), kSample), 1e-4)
        << text;
  }
}

TEST(Distribution, ConstantsAndClocksAreNotFittedAsGammas) {
  EXPECT_FALSE(fit_gamma(std::vector<double>(100, 3.0)).has_value());
  EXPECT_FALSE(fit_weibull(std::vector<double>(100, 3.0)).has_value());
  std::vector<double> jitter;
  for (int i = 0; i < 1000; ++i) jitter.push_back(3 + 0.001 * (i % 3));
  EXPECT_FALSE(fit_gamma(jitter).has_value());  // the shape would be 10^7
  EXPECT_FALSE(fit_weibull(jitter).has_value());
  EXPECT_FALSE(fit_gamma(std::vector<double>{}).has_value());
  EXPECT_FALSE(fit_zipf(std::vector<double>{1.5, 2}).has_value());
}

TEST(Distribution, JsonAndTextRoundTripAndRefuse) {
  for (const char* text : {"gamma:shape=0.25,scale=2", "zipf:theta=1.1,max=1024", "fixed:7"}) {
    const Distribution d = make(text);
    const auto again = Distribution::from_json(d.json());
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->a, d.a);
    EXPECT_EQ(again->b, d.b);
  }
  EXPECT_NEAR(make("gamma:shape=0.25,mean=8").mean(), 8, 1e-12);
  EXPECT_NEAR(make("weibull:shape=0.5,mean=8").mean(), 8, 1e-12);
  for (const char* bad : {"", "gauss:mean=1", "gamma", "gamma:shape=0.5", "gamma:shape=-1,scale=1",
                          "gamma:shape=1,scale=1,x=2", "fixed:-1", "exponential:mean=0",
                          "zipf:theta=1,max=0", "geometric:mean=0.5", "fixed:abc"}) {
    EXPECT_FALSE(Distribution::parse(bad).has_value()) << bad;
  }
}

TEST(Stats, DistancesAndRanksOfSmallSamples) {
  // Worked by hand.
  const std::vector<double> a{1, 2, 3, 4}, b{3, 4, 5, 6};
  EXPECT_DOUBLE_EQ(ks_distance(a, b), 0.5);
  EXPECT_DOUBLE_EQ(spearman(a, std::vector<double>{2, 1, 4, 3}), 0.6);
  EXPECT_DOUBLE_EQ(spearman(a, std::vector<double>{1, 1, 1, 1}), 0);
  EXPECT_DOUBLE_EQ(quantile_sorted(a, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(ks_distance(a, [](double x) { return std::clamp(x / 4, 0.0, 1.0); }), 0.25);
  // Counts 2, 0, 2, 0, 2, 0, 2 in windows of 1 s: mean 8/7, mean square 16/7.
  const std::vector<double> pairs{0, .5, 2, 2.5, 4, 4.5, 6, 6.5};
  EXPECT_NEAR(dispersion_index(pairs, 1), (16.0 / 7 - 64.0 / 49) / (8.0 / 7), 1e-12);
  EXPECT_NEAR(ks_p_value(0.0430, 1000), 0.048, 0.003);  // 1.36 / sqrt(n) is the 5 % point
}

TEST(Stats, ClocksThatTickAreSeen) {
  std::vector<double> ticks, fine;
  for (int i = 0; i < 1000; ++i) {
    ticks.push_back(i % 10 == 0 ? 3 : 0);
    fine.push_back(0.25 + 0.001 * (i % 400));  // a millisecond clock, slow arrivals
  }
  const auto coarse = check_clock(ticks);
  EXPECT_TRUE(coarse.quantised);
  EXPECT_DOUBLE_EQ(coarse.step_s, 3);
  EXPECT_DOUBLE_EQ(coarse.zero_share, 0.9);
  std::vector<double> seconds;  // whole seconds, a few apart, none 0
  for (int i = 0; i < 1000; ++i) seconds.push_back(1 + i % 4);
  EXPECT_TRUE(check_clock(seconds).quantised);
  fine[0] = 0.001;
  EXPECT_FALSE(check_clock(fine).quantised);
}

}  // namespace
}  // namespace weft::workload
