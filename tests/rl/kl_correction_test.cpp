#include <gtest/gtest.h>

#include <cmath>

#include "weft/base/rng.h"
#include "weft/rl/correction.h"
#include "weft/rl/kl.h"

namespace weft::rl {
namespace {

TEST(Kl, EstimatorsMatchTheirFormulasAndSlopes) {
  for (double d : {-2.5, -0.3, -1e-6, 0.0, 1e-6, 0.4, 2.0}) {
    const double k[] = {d, d * d / 2, std::exp(-d) + d - 1};
    const double s[] = {1, d, 1 - std::exp(-d)};
    int i = 0;
    for (auto e : {KlEstimator::kK1, KlEstimator::kK2, KlEstimator::kK3}) {
      const KlTerm term = kl_term(e, -1.0 + d, -1.0);
      EXPECT_NEAR(term.value, k[i], 1e-9) << to_string(e) << " " << d;
      EXPECT_NEAR(term.slope, s[i], 1e-9) << to_string(e) << " " << d;
      ++i;
    }
  }
}

TEST(Kl, ValuesAreClampedAndFlatOutside) {
  EXPECT_EQ(kl_term(KlEstimator::kK3, -15, -1).value, 10);
  EXPECT_EQ(kl_term(KlEstimator::kK3, -15, -1).slope, 0);
  EXPECT_EQ(kl_term(KlEstimator::kK1, -15, -1).value, -10);
}

TEST(Kl, MeanOfK1AndK3IsTheDivergence) {
  // Exact expectations over a small distribution.
  const double p[] = {0.5, 0.3, 0.2}, q[] = {0.2, 0.5, 0.3};
  double kl = 0, k1 = 0, k3 = 0;
  for (int i = 0; i < 3; ++i) {
    kl += p[i] * std::log(p[i] / q[i]);
    k1 += p[i] * kl_term(KlEstimator::kK1, std::log(p[i]), std::log(q[i])).value;
    k3 += p[i] * kl_term(KlEstimator::kK3, std::log(p[i]), std::log(q[i])).value;
  }
  EXPECT_NEAR(k1, kl, 1e-12);
  EXPECT_NEAR(k3, kl, 1e-12);
}

TEST(Kl, ControllerMovesByAtMostAFifthOfItsShare) {
  EXPECT_NEAR(adapt_kl_coefficient(0.1, 0.1, 0.1, 256, 10000), 0.1, 1e-15);
  EXPECT_NEAR(adapt_kl_coefficient(0.1, 5.0, 0.1, 256, 10000), 0.1 * (1 + 0.2 * 0.0256), 1e-15);
  EXPECT_NEAR(adapt_kl_coefficient(0.1, 0.0, 0.1, 256, 10000), 0.1 * (1 - 0.2 * 0.0256), 1e-15);
  EXPECT_NEAR(adapt_kl_coefficient(0.1, 0.11, 0.1, 256, 10000), 0.1 * (1 + 0.1 * 0.0256), 1e-12);
}

const std::vector<std::int64_t> kOffsets = {0, 3, 5};
const std::vector<float> kRollout = {-1, -1, -1, -2, -2};
const std::vector<float> kOld = {-1, -0.5F, -3, -1, -2.25F};

TEST(Correction, TokenWeightsAreTruncatedRatios) {
  const Correction c = correct({.weight = CorrectionWeight::kToken}, kOffsets, kOld, kRollout);
  for (std::size_t t = 0; t < kOld.size(); ++t)
    EXPECT_NEAR(c.weight[t], std::min(2.0, std::exp(double{kOld[t]} - kRollout[t])), 1e-6);
  EXPECT_NEAR(c.mismatch_max, 2.0, 1e-6);
  EXPECT_NEAR(c.mismatch_mean, (0 + 0.5 + 2 + 1 + 0.25) / 5, 1e-6);
  double s = 0, q = 0;
  for (std::size_t t = 0; t < kOld.size(); ++t) {
    const double r = std::exp(double{kOld[t]} - kRollout[t]);
    s += r;
    q += r * r;
  }
  EXPECT_NEAR(c.effective_sample_size, s * s / (5 * q), 1e-9);
}

TEST(Correction, SequenceWeightsMultiplyAndNormalisedOnesHaveMeanOne) {
  Correction c = correct({.weight = CorrectionWeight::kSequence}, kOffsets, kOld, kRollout);
  EXPECT_NEAR(c.weight[0], std::exp(-1.5), 1e-6);
  EXPECT_NEAR(c.weight[2], std::exp(-1.5), 1e-6);
  EXPECT_NEAR(c.weight[4], 2.0, 1e-6);  // exp(0.75) > 2
  c = correct({.weight = CorrectionWeight::kToken, .normalize = true}, kOffsets, kOld, kRollout);
  double mean = 0;
  for (float w : c.weight) mean += w / 5;
  EXPECT_NEAR(mean, 1.0, 1e-6);
}

TEST(Correction, RejectionByTokenAndBySequence) {
  CorrectionConfig config{
      .rejection = CorrectionRejection::kToken, .reject_low = -1.5, .reject_high = 0.9};
  EXPECT_EQ(correct(config, kOffsets, kOld, kRollout).keep,
            (std::vector<std::uint8_t>{1, 1, 0, 0, 1}));
  config.rejection = CorrectionRejection::kSequenceMax;
  EXPECT_EQ(correct(config, kOffsets, kOld, kRollout).keep,
            (std::vector<std::uint8_t>{1, 1, 1, 0, 0}));
  config.rejection = CorrectionRejection::kSequenceMean;  // -0.5, 0.375
  EXPECT_EQ(correct(config, kOffsets, kOld, kRollout).rejected_tokens, 0);
  config.rejection = CorrectionRejection::kSequenceSum;  // -1.5, 0.75
  config.reject_low = -1.4;
  EXPECT_EQ(correct(config, kOffsets, kOld, kRollout).keep,
            (std::vector<std::uint8_t>{0, 0, 0, 1, 1}));
}

TEST(Correction, OnPolicyNothingChanges) {
  const Correction c =
      correct({.weight = CorrectionWeight::kToken, .rejection = CorrectionRejection::kSequenceMean},
              kOffsets, kOld, kOld);
  for (float w : c.weight) EXPECT_EQ(w, 1.0F);
  EXPECT_EQ(c.rejected_tokens, 0);
  EXPECT_EQ(c.mismatch_max, 0);
  EXPECT_EQ(c.effective_sample_size, 1);
}

TEST(Correction, EmptyIntervalsAndCapsAreRefused) {
  EXPECT_FALSE(validate(CorrectionConfig{.cap = 0}));
  EXPECT_FALSE(validate(CorrectionConfig{
      .rejection = CorrectionRejection::kToken, .reject_low = 1, .reject_high = 1}));
  EXPECT_TRUE(validate(CorrectionConfig{}));
}

}  // namespace
}  // namespace weft::rl
