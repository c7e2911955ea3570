// Off-policy correction: what to do about samples whose sampler was not exactly
// the policy that the batch starts from (other kernels, older weights).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weft/base/result.h"
#include "weft/rl/kl.h"

namespace weft::rl {

// w = min(pi_old / pi_rollout, cap), logs clamped to +-20 (truncated importance
// sampling; Espeholt et al. 2018). kSequence multiplies the ratios of a sequence.
enum class CorrectionWeight : std::uint8_t { kNone, kToken, kSequence };

// Drops what lies outside [reject_low, reject_high]: a token by its own statistic
// (k1, k2 or k3 of pi_old against pi_rollout), or whole sequences by the mean, sum
// or maximum of their tokens'.
enum class CorrectionRejection : std::uint8_t {
  kNone,
  kToken,
  kSequenceMean,
  kSequenceSum,
  kSequenceMax
};

struct CorrectionConfig {
  CorrectionWeight weight = CorrectionWeight::kNone;
  double cap = 2.0;
  bool normalize = false;  // scales the weights to mean 1 over the kept tokens
  CorrectionRejection rejection = CorrectionRejection::kNone;
  KlEstimator statistic = KlEstimator::kK1;
  double reject_low = -1.0, reject_high = 1.0;
};
Status validate(const CorrectionConfig& config);

struct Correction {
  std::vector<float> weight;       // [tokens]; empty where every weight is 1 by configuration
  std::vector<std::uint8_t> keep;  // [tokens]; empty where nothing may be rejected
  double rejected_tokens = 0;
  double effective_sample_size = 1.0;  // (sum w)^2 / (n sum w^2), of untruncated token ratios
  double mismatch_mean = 0, mismatch_max = 0;  // of |log pi_rollout - log pi_old|
};
// A function of the whole batch (normalisation needs it), to run before it is cut.
Correction correct(const CorrectionConfig& config, std::span<const std::int64_t> offsets,
                   std::span<const float> logp_old, std::span<const float> logp_rollout);

}  // namespace weft::rl
