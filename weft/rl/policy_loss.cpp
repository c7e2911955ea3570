#include "weft/rl/policy_loss.h"

#include <algorithm>
#include <cmath>

namespace weft::rl {
namespace {

constexpr double kLogRatioLimit = 20.0;  // verl, TRL: exp never overflows
constexpr double kGspoLogLimit = 10.0;

// One token's term and its slope with respect to log pi.
struct Term {
  double value = 0, slope = 0;
  bool clipped_low = false, clipped_high = false, dual_clipped = false;
};

// `ratio` has slope `ratio_slope`; the clipped surrogate of PPO with the bound of
// dual clip on the side A < 0.
Term clipped_surrogate(const LossConfig& c, double ratio, double ratio_slope, double a) {
  Term term;
  const double bounded = std::clamp(ratio, 1.0 - c.clip_low, 1.0 + c.clip_high);
  const double plain = ratio * a, clipped = bounded * a;
  if (clipped < plain) {
    term = {
        .value = clipped, .slope = 0, .clipped_low = ratio<bounded, .clipped_high = ratio> bounded};
  } else {
    term = {.value = plain, .slope = ratio_slope * a};
  }
  if (c.dual_clip > 0 && a < 0 && c.dual_clip * a > term.value) {
    term = {.value = c.dual_clip * a, .slope = 0, .dual_clipped = true};
  }
  return term;
}

Term token_term(const LossConfig& c, double logp, double log_ratio, double sequence_log_ratio,
                double a) {
  const double limited = std::clamp(log_ratio, -kLogRatioLimit, kLogRatioLimit);
  const double ratio = std::exp(limited);
  const double ratio_slope = limited == log_ratio ? ratio : 0.0;
  switch (c.objective) {
    case Objective::kPpoClip:
      return clipped_surrogate(c, ratio, ratio_slope, a);
    case Objective::kGspo: {
      const bool over = sequence_log_ratio > kGspoLogLimit;
      const double s = std::exp(over ? kGspoLogLimit : sequence_log_ratio);
      return clipped_surrogate(c, s, over ? 0.0 : s, a);
    }
    case Objective::kCispo: {
      const double bounded = std::clamp(ratio, 1.0 - c.clip_low, 1.0 + c.clip_high);
      return {.value = bounded * a * logp,
              .slope = bounded * a,
              .clipped_low = ratio<bounded, .clipped_high = ratio> bounded};
    }
    case Objective::kSapo: {
      const double tau = a > 0 ? c.sapo_tau_positive : c.sapo_tau_negative;
      const double gate = 1.0 / (1.0 + std::exp(-tau * (ratio - 1.0)));
      return {.value = 4.0 / tau * gate * a, .slope = 4.0 * gate * (1.0 - gate) * ratio_slope * a};
    }
  }
  return {};
}

double token_weight(const LossConfig& c, const LossCounts& counts, double length) {
  const auto sequences = static_cast<double>(counts.sequences);
  switch (c.aggregation) {
    case Aggregation::kTokenMean:
      return 1.0 / static_cast<double>(counts.tokens);
    case Aggregation::kSequenceMeanTokenMean:
      return 1.0 / (sequences * length);
    case Aggregation::kSequenceMeanTokenSum:
      return 1.0 / sequences;
    case Aggregation::kTokenSumOverConstant:
      return 1.0 / (sequences * c.token_sum_constant);
  }
  return 0;
}

// Half the larger of the plain and the clipped squared error, as PPO's code does it.
struct ValueTerm {
  double loss, slope;
  bool clipped;
};
ValueTerm value_term(const LossConfig& c, double v, double old, double target) {
  const double plain = (v - target) * (v - target);
  if (c.value_clip > 0) {
    const double bounded = std::clamp(v, old - c.value_clip, old + c.value_clip);
    const double clipped = (bounded - target) * (bounded - target);
    if (clipped > plain) return {0.5 * clipped, bounded == v ? bounded - target : 0.0, true};
  }
  return {0.5 * plain, v - target, false};
}

}  // namespace

std::string_view to_string(Objective objective) {
  switch (objective) {
    case Objective::kPpoClip:
      return "ppo-clip";
    case Objective::kGspo:
      return "gspo";
    case Objective::kCispo:
      return "cispo";
    case Objective::kSapo:
      return "sapo";
  }
  return "?";
}

std::string_view to_string(Aggregation aggregation) {
  switch (aggregation) {
    case Aggregation::kTokenMean:
      return "token-mean";
    case Aggregation::kSequenceMeanTokenMean:
      return "seq-mean-token-mean";
    case Aggregation::kSequenceMeanTokenSum:
      return "seq-mean-token-sum";
    case Aggregation::kTokenSumOverConstant:
      return "token-sum-over-constant";
  }
  return "?";
}

Status validate(const LossConfig& c) {
  const auto bad = ErrorCode::kInvalidArgument;
  if (c.objective != Objective::kSapo) {
    if (!(c.clip_low > 0 && c.clip_low < 1))
      return fail(bad,
                  "clip-low is {}: the ratio is clipped to [1 - clip-low, ...], so it must "
                  "lie in (0, 1)",
                  c.clip_low);
    if (!(c.clip_high > 0 && c.clip_high < 1))
      return fail(bad, "clip-high is {}: it must lie in (0, 1)", c.clip_high);
  }
  if (c.dual_clip != 0 && !(c.dual_clip > 1))
    return fail(bad, "dual-clip is {}: it must be above 1, or 0 to turn it off", c.dual_clip);
  if (c.objective == Objective::kSapo) {
    if (c.decoupled)
      return fail(bad,
                  "SAPO with the decoupled loss: its soft gate already stands for the clip "
                  "around the old policy, so the two do not combine; use ppo-clip or turn "
                  "decoupled off");
    if (!(c.sapo_tau_positive > 0 && c.sapo_tau_negative > 0))
      return fail(bad, "SAPO's temperatures must be above 0 (they are {} and {})",
                  c.sapo_tau_positive, c.sapo_tau_negative);
  }
  if (c.aggregation == Aggregation::kTokenSumOverConstant && !(c.token_sum_constant > 0))
    return fail(bad, "token-sum-over-constant needs a constant above 0");
  if (!(c.kl_coefficient >= 0)) return fail(bad, "the KL coefficient is negative or not a number");
  if (!(std::isfinite(c.entropy_coefficient) && c.entropy_coefficient >= 0))
    return fail(bad, "the entropy coefficient is negative or not a number");
  if (!(c.value_coefficient >= 0 && c.value_clip >= 0))
    return fail(bad, "value coefficient and value clip must not be negative");
  return {};
}

LossCounts count_tokens(std::span<const std::int64_t> offsets, std::span<const std::uint8_t> keep) {
  LossCounts counts;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    std::int64_t kept = 0;
    for (std::int64_t t = offsets[i]; t < offsets[i + 1]; ++t)
      kept += keep.empty() || keep[static_cast<std::size_t>(t)] != 0;
    counts.tokens += kept;
    counts.sequences += kept > 0;
  }
  return counts;
}

void LossSums::add(const LossSums& o) {
  objective += o.objective;
  policy += o.policy;
  kl += o.kl;
  entropy += o.entropy;
  value += o.value;
  tokens += o.tokens;
  clipped_low += o.clipped_low;
  clipped_high += o.clipped_high;
  dual_clipped += o.dual_clipped;
  log_ratio += o.log_ratio;
  approx_kl += o.approx_kl;
  ratio_max = std::max(ratio_max, o.ratio_max);
  value_clipped += o.value_clipped;
}

LossSums policy_loss(const LossConfig& c, const LossCounts& counts, const LossTokens& tokens,
                     LossGradient& gradient) {
  const std::size_t n = tokens.logp.size();
  WEFT_CHECK(tokens.logp_old.size() == n && tokens.advantage.size() == n,
             "{} log-probabilities, {} old ones, {} advantages", n, tokens.logp_old.size(),
             tokens.advantage.size());
  WEFT_CHECK(!(c.kl_coefficient > 0) || tokens.logp_reference.size() == n,
             "a KL term needs the reference's log-probabilities");
  WEFT_CHECK(!(c.entropy_coefficient > 0) || tokens.entropy.size() == n,
             "an entropy bonus needs entropies");
  const bool has_values = !tokens.value.empty();
  gradient.logp.assign(n, 0.0F);
  gradient.entropy.assign(c.entropy_coefficient > 0 ? n : 0, 0.0F);
  gradient.value.assign(has_values ? n : 0, 0.0F);
  LossSums sums;
  const auto kept = [&](std::size_t t) { return tokens.keep.empty() || tokens.keep[t] != 0; };

  for (std::size_t i = 0; i + 1 < tokens.offsets.size(); ++i) {
    const auto begin = static_cast<std::size_t>(tokens.offsets[i]);
    const auto end = static_cast<std::size_t>(tokens.offsets[i + 1]);
    double length = 0, sequence_log_ratio = 0;
    for (std::size_t t = begin; t < end; ++t) {
      if (!kept(t)) continue;
      length += 1;
      sequence_log_ratio += static_cast<double>(tokens.logp[t]) - tokens.logp_old[t];
    }
    if (length == 0) continue;
    sequence_log_ratio /= length;
    const double share = token_weight(c, counts, length);
    for (std::size_t t = begin; t < end; ++t) {
      if (!kept(t)) continue;
      const double logp = tokens.logp[t];
      const double log_ratio = logp - tokens.logp_old[t];
      const double weight = tokens.weight.empty() ? 1.0 : tokens.weight[t];
      const Term term = token_term(c, logp, log_ratio, sequence_log_ratio, tokens.advantage[t]);
      double slope = share * weight * term.slope;
      sums.policy += share * weight * term.value;
      sums.tokens += 1;
      sums.clipped_low += term.clipped_low;
      sums.clipped_high += term.clipped_high;
      sums.dual_clipped += term.dual_clipped;
      sums.log_ratio += log_ratio;
      sums.approx_kl += std::expm1(log_ratio) - log_ratio;  // k3 of the sampled old token
      sums.ratio_max = std::max(sums.ratio_max, std::exp(std::min(log_ratio, kLogRatioLimit)));
      if (!tokens.logp_reference.empty()) {
        const KlTerm kl = kl_term(c.kl_estimator, logp, tokens.logp_reference[t]);
        sums.kl += share * kl.value;
        slope -= c.kl_coefficient * share * kl.slope;
      }
      if (!tokens.entropy.empty()) sums.entropy += share * tokens.entropy[t];
      if (!gradient.entropy.empty())
        gradient.entropy[t] = static_cast<float>(share * c.entropy_coefficient);
      if (has_values) {
        const ValueTerm v = value_term(c, tokens.value[t], tokens.value_old[t], tokens.returns[t]);
        sums.value += share * v.loss;
        sums.value_clipped += v.clipped;
        gradient.value[t] = static_cast<float>(-c.value_coefficient * share * v.slope);
      }
      gradient.logp[t] = static_cast<float>(slope);
    }
  }
  sums.objective = sums.policy - c.kl_coefficient * sums.kl + c.entropy_coefficient * sums.entropy -
                   c.value_coefficient * sums.value;
  return sums;
}

}  // namespace weft::rl
