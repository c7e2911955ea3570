// Objectives against a scalar reference written from the formulas in long double
// with stop-gradients as a second, frozen argument, and gradients against finite
// differences of that reference.
#include "weft/rl/policy_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "weft/base/rng.h"

namespace weft::rl {
namespace {

using Real = long double;

struct Batch {
  std::vector<std::int64_t> offsets{0};
  std::vector<float> logp, old, advantage, weight, reference, entropy, value, value_old, returns;
  LossTokens view() const {
    return {.offsets = offsets,
            .logp = logp,
            .logp_old = old,
            .advantage = advantage,
            .weight = weight,
            .keep = {},
            .logp_reference = reference,
            .entropy = entropy,
            .value = value,
            .value_old = value_old,
            .returns = returns};
  }
};

Batch random_batch(std::uint64_t seed, std::size_t sequences, float spread) {
  Rng rng(seed, RngUse::kTest, 11);
  Batch b;
  for (std::size_t i = 0; i < sequences; ++i) {
    const std::int64_t length = 1 + rng.next_below(7);
    const float a = rng.next_normal();
    for (std::int64_t t = 0; t < length; ++t) {
      const float p = -0.05F - 3 * rng.next_uniform();
      b.logp.push_back(p);
      b.old.push_back(p + spread * rng.next_normal());
      b.reference.push_back(p + 0.5F * rng.next_normal());
      b.advantage.push_back(a);
      b.weight.push_back(0.25F + 1.5F * rng.next_uniform());
      b.entropy.push_back(2 * rng.next_uniform());
      b.value.push_back(rng.next_normal());
      b.value_old.push_back(b.value.back() + 0.4F * rng.next_normal());
      b.returns.push_back(rng.next_normal());
    }
    b.offsets.push_back(static_cast<std::int64_t>(b.logp.size()));
  }
  return b;
}

// J at `x`, stop-gradients at `frozen`; h and v stand for entropies and values.
Real reference_objective(const LossConfig& c, const Batch& b, const std::vector<Real>& x,
                         const std::vector<Real>& frozen, const std::vector<Real>& h,
                         const std::vector<Real>& v) {
  Real total = 0;
  const std::size_t n = b.offsets.size() - 1;
  const auto all = static_cast<Real>(x.size());
  for (std::size_t i = 0; i < n; ++i) {
    const auto lo = static_cast<std::size_t>(b.offsets[i]),
               hi = static_cast<std::size_t>(b.offsets[i + 1]);
    const auto length = static_cast<Real>(hi - lo);
    Real mean_log = 0;
    for (std::size_t t = lo; t < hi; ++t) mean_log += (frozen[t] - b.old[t]) / length;
    Real sum = 0;
    for (std::size_t t = lo; t < hi; ++t) {
      const Real A = b.advantage[t];
      const auto clip = [&](Real r) {
        return std::min(std::max(r, 1 - static_cast<Real>(c.clip_low)),
                        1 + static_cast<Real>(c.clip_high));
      };
      const auto surrogate = [&](Real r) {
        Real s = std::min(r * A, clip(r) * A);
        if (A < 0 && c.dual_clip > 0) s = std::max(s, static_cast<Real>(c.dual_clip) * A);
        return s;
      };
      const Real r = std::exp(std::min<Real>(20, std::max<Real>(-20, x[t] - b.old[t])));
      const Real r_frozen = std::exp(frozen[t] - b.old[t]);
      Real term = 0;
      switch (c.objective) {
        case Objective::kPpoClip:
          term = surrogate(r);
          break;
        case Objective::kGspo:
          term = surrogate(std::exp(std::min<Real>(10, mean_log)) * std::exp(x[t] - frozen[t]));
          break;
        case Objective::kCispo:
          term = clip(r_frozen) * A * x[t];
          break;
        case Objective::kSapo: {
          const Real tau = A > 0 ? c.sapo_tau_positive : c.sapo_tau_negative;
          term = 4 / tau / (1 + std::exp(-tau * (r - 1))) * A;
          break;
        }
      }
      term *= b.weight[t];
      if (c.kl_coefficient > 0) {
        const Real d = x[t] - b.reference[t];
        const Real k = c.kl_estimator == KlEstimator::kK1   ? d
                       : c.kl_estimator == KlEstimator::kK2 ? d * d / 2
                                                            : std::exp(-d) + d - 1;
        term -= c.kl_coefficient * std::min<Real>(10, std::max<Real>(-10, k));
      }
      term += c.entropy_coefficient * h[t];
      const Real plain = (v[t] - b.returns[t]) * (v[t] - b.returns[t]);
      const Real near =
          b.value_old[t] +
          std::min<Real>(c.value_clip, std::max<Real>(-c.value_clip, v[t] - b.value_old[t]));
      const Real clipped = (near - b.returns[t]) * (near - b.returns[t]);
      term -= c.value_coefficient * (c.value_clip > 0 ? std::max(plain, clipped) : plain) / 2;
      sum += term;
    }
    switch (c.aggregation) {
      case Aggregation::kTokenMean:
        total += sum / all;
        break;
      case Aggregation::kSequenceMeanTokenMean:
        total += sum / length / static_cast<Real>(n);
        break;
      case Aggregation::kSequenceMeanTokenSum:
        total += sum / static_cast<Real>(n);
        break;
      case Aggregation::kTokenSumOverConstant:
        total += sum / static_cast<Real>(c.token_sum_constant) / static_cast<Real>(n);
        break;
    }
  }
  return total;
}

std::vector<LossConfig> configurations() {
  std::vector<LossConfig> all;
  for (auto objective :
       {Objective::kPpoClip, Objective::kGspo, Objective::kCispo, Objective::kSapo})
    for (auto aggregation :
         {Aggregation::kTokenMean, Aggregation::kSequenceMeanTokenMean,
          Aggregation::kSequenceMeanTokenSum, Aggregation::kTokenSumOverConstant})
      for (int variant = 0; variant < 3; ++variant) {
        LossConfig c{
            .objective = objective, .aggregation = aggregation, .clip_low = 0.2, .clip_high = 0.28};
        c.token_sum_constant = 7;
        if (variant == 0) c.kl_estimator = KlEstimator::kK1;
        if (variant == 1) c.kl_estimator = KlEstimator::kK2;
        if (variant == 2) c.dual_clip = 0, c.value_clip = 0;
        c.kl_coefficient = variant == 0 ? 0.0 : 0.05;
        c.entropy_coefficient = variant == 2 ? 0.0 : 0.01;
        all.push_back(c);
      }
  return all;
}

std::string name(const LossConfig& c) {
  return fmt::format("{} {} {} dual {}", to_string(c.objective), to_string(c.aggregation),
                     to_string(c.kl_estimator), c.dual_clip);
}

TEST(PolicyLoss, ValuesAndGradientsMatchTheScalarReference) {
  for (const LossConfig& c : configurations())
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      // Seed 3 goes far enough for dual clip and every clamp of the ratio.
      const Batch b = random_batch(seed, 6, seed == 3 ? 2.0F : 0.25F);
      LossGradient g;
      const LossSums sums = policy_loss(c, count_tokens(b.offsets, {}), b.view(), g);
      const std::vector<Real> x(b.logp.begin(), b.logp.end()),
          h(b.entropy.begin(), b.entropy.end()), v(b.value.begin(), b.value.end());
      const Real expected = reference_objective(c, b, x, x, h, v);
      EXPECT_NEAR(sums.objective, static_cast<double>(expected),
                  1e-5 * (1 + std::abs(static_cast<double>(expected))))
          << name(c);
      const Real step = 1e-7L;
      for (std::size_t t = 0; t < x.size(); ++t) {
        const auto slope = [&](const std::function<Real(Real)>& f) {
          return static_cast<double>((f(step) - f(-step)) / (2 * step));
        };
        const double by_logp = slope([&](Real d) {
          auto y = x;
          y[t] += d;
          return reference_objective(c, b, y, x, h, v);
        });
        EXPECT_NEAR(g.logp[t], by_logp, 1e-5 * (1 + std::abs(by_logp)))
            << name(c) << " token " << t << " seed " << seed;
        const double by_value = slope([&](Real d) {
          auto y = v;
          y[t] += d;
          return reference_objective(c, b, x, x, h, y);
        });
        EXPECT_NEAR(g.value[t], by_value, 1e-5) << name(c);
        const double by_entropy = slope([&](Real d) {
          auto y = h;
          y[t] += d;
          return reference_objective(c, b, x, x, y, v);
        });
        EXPECT_NEAR(g.entropy.empty() ? 0.0 : g.entropy[t], by_entropy, 1e-5) << name(c);
      }
    }
}

// Sequences [from, to) of a batch as a batch of their own.
Batch cut(const Batch& b, std::size_t from, std::size_t to) {
  Batch part;
  const auto lo = b.offsets[from], hi = b.offsets[to];
  for (std::size_t i = from + 1; i <= to; ++i) part.offsets.push_back(b.offsets[i] - lo);
  const auto take = [&](const std::vector<float>& v) {
    return std::vector<float>(v.begin() + lo, v.begin() + hi);
  };
  part.logp = take(b.logp), part.old = take(b.old), part.advantage = take(b.advantage);
  part.weight = take(b.weight), part.reference = take(b.reference), part.entropy = take(b.entropy);
  part.value = take(b.value), part.value_old = take(b.value_old), part.returns = take(b.returns);
  return part;
}

TEST(PolicyLoss, DoesNotDependOnMicroBatchesOrShards) {
  for (const LossConfig& c : configurations()) {
    const Batch b = random_batch(5, 16, 0.3F);
    const LossCounts counts = count_tokens(b.offsets, {});
    LossGradient whole;
    const LossSums sums = policy_loss(c, counts, b.view(), whole);
    for (std::size_t parts : {2U, 4U, 16U}) {
      LossSums added;
      std::vector<float> joined;
      for (std::size_t p = 0; p < parts; ++p) {
        const Batch part = cut(b, p * 16 / parts, (p + 1) * 16 / parts);
        LossGradient g;
        added.add(policy_loss(c, counts, part.view(), g));
        joined.insert(joined.end(), g.logp.begin(), g.logp.end());
      }
      EXPECT_NEAR(added.objective, sums.objective, 1e-6) << name(c);
      EXPECT_NEAR(added.policy, sums.policy, 1e-6);
      EXPECT_EQ(added.tokens, sums.tokens);
      ASSERT_EQ(joined.size(), whole.logp.size());
      for (std::size_t t = 0; t < joined.size(); ++t)
        EXPECT_EQ(joined[t], whole.logp[t]) << name(c);
    }
  }
}

TEST(PolicyLoss, OnPolicyEveryObjectiveIsPlainPolicyGradient) {
  // At pi = pi_old the slope of each objective is A / tokens.
  for (auto objective :
       {Objective::kPpoClip, Objective::kGspo, Objective::kCispo, Objective::kSapo}) {
    Batch b = random_batch(6, 8, 0.0F);
    LossConfig c{.objective = objective};
    LossGradient g;
    LossTokens view = b.view();
    view.weight = {};
    view.value = {}, view.entropy = {}, view.logp_reference = {};
    const LossSums sums = policy_loss(c, count_tokens(b.offsets, {}), view, g);
    for (std::size_t t = 0; t < b.logp.size(); ++t)
      EXPECT_NEAR(g.logp[t], b.advantage[t] / static_cast<float>(b.logp.size()), 1e-6);
    EXPECT_EQ(sums.clipped_low + sums.clipped_high, 0);
    EXPECT_NEAR(sums.ratio_max, 1.0, 1e-12);
    EXPECT_TRUE(g.value.empty());
  }
}

TEST(PolicyLoss, DualClipBoundsWhatABadTokenCosts) {
  // ratio e^3 = 20 with A = -1: min(-20, -1.2) = -20, bounded to -3 and flat there.
  const std::vector<std::int64_t> offsets = {0, 1};
  const std::vector<float> logp = {-1}, old = {-4}, advantage = {-1};
  LossConfig c;
  LossGradient g;
  LossTokens tokens{.offsets = offsets, .logp = logp, .logp_old = old, .advantage = advantage};
  LossSums sums = policy_loss(c, {.tokens = 1, .sequences = 1}, tokens, g);
  EXPECT_NEAR(sums.policy, -3.0, 1e-6);
  EXPECT_EQ(g.logp[0], 0.0F);
  EXPECT_EQ(sums.dual_clipped, 1);
  c.dual_clip = 0;
  sums = policy_loss(c, {.tokens = 1, .sequences = 1}, tokens, g);
  EXPECT_NEAR(sums.policy, -std::exp(3.0), 1e-4);
}

TEST(PolicyLoss, RejectedTokensTakeNoPartInSumsAndCounts) {
  const Batch b = random_batch(8, 4, 0.1F);
  std::vector<std::uint8_t> keep(b.logp.size(), 1);
  for (auto t = b.offsets[1]; t < b.offsets[2]; ++t) keep[static_cast<std::size_t>(t)] = 0;
  const LossCounts counts = count_tokens(b.offsets, keep);
  EXPECT_EQ(counts.sequences, 3);
  EXPECT_EQ(counts.tokens,
            static_cast<std::int64_t>(b.logp.size()) - (b.offsets[2] - b.offsets[1]));
  LossTokens view = b.view();
  view.keep = keep;
  LossGradient g, changed;
  const LossSums before = policy_loss(LossConfig{}, counts, view, g);
  std::vector<float> other = b.logp;
  for (auto t = b.offsets[1]; t < b.offsets[2]; ++t) other[static_cast<std::size_t>(t)] -= 1.0F;
  view.logp = other;
  const LossSums after = policy_loss(LossConfig{}, counts, view, changed);
  EXPECT_EQ(before.objective, after.objective);
  EXPECT_EQ(g.logp, changed.logp);
}

TEST(PolicyLoss, BadConfigurationsAreRefusedWithAReason) {
  const auto reason = [](LossConfig c) {
    const Status s = validate(c);
    return s ? std::string() : s.error().message;
  };
  EXPECT_EQ(reason({}), "");
  EXPECT_NE(reason({.clip_low = 1.0}).find("clip-low"), std::string::npos);
  EXPECT_NE(reason({.clip_low = 0.0}).find("(0, 1)"), std::string::npos);
  EXPECT_NE(reason({.clip_high = -0.1}).find("clip-high"), std::string::npos);
  EXPECT_NE(reason({.clip_high = std::nan("")}).find("clip-high"), std::string::npos);
  EXPECT_NE(reason({.dual_clip = 0.5}).find("dual-clip"), std::string::npos);
  EXPECT_NE(reason({.objective = Objective::kSapo, .decoupled = true}).find("SAPO"),
            std::string::npos);
  EXPECT_NE(reason({.aggregation = Aggregation::kTokenSumOverConstant}).find("constant"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::rl
