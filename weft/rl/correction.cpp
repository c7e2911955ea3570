#include "weft/rl/correction.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft::rl {
namespace {

constexpr double kLogRatioLimit = 20.0;

double ratio_of(double log_ratio) {
  return std::exp(std::clamp(log_ratio, -kLogRatioLimit, kLogRatioLimit));
}

void reject(const CorrectionConfig& config, std::size_t begin, std::size_t end,
            std::span<const float> logp_old, std::span<const float> logp_rollout,
            std::vector<std::uint8_t>& keep) {
  const auto outside = [&](double x) {
    return !(x >= config.reject_low && x <= config.reject_high);
  };
  double sum = 0, largest = -std::numeric_limits<double>::infinity();
  for (std::size_t t = begin; t < end; ++t) {
    const double k = kl_term(config.statistic, logp_old[t], logp_rollout[t]).value;
    if (config.rejection == CorrectionRejection::kToken && outside(k)) keep[t] = 0;
    sum += k;
    largest = std::max(largest, k);
  }
  if (config.rejection == CorrectionRejection::kToken || begin == end) return;
  double statistic = largest;
  if (config.rejection == CorrectionRejection::kSequenceSum) statistic = sum;
  if (config.rejection == CorrectionRejection::kSequenceMean)
    statistic = sum / static_cast<double>(end - begin);
  if (outside(statistic))
    std::fill(keep.begin() + static_cast<std::ptrdiff_t>(begin),
              keep.begin() + static_cast<std::ptrdiff_t>(end), 0);
}

}  // namespace

Status validate(const CorrectionConfig& config) {
  if (!(config.cap > 0))
    return fail(ErrorCode::kInvalidArgument, "the correction cap is {}: it must be above 0",
                config.cap);
  if (config.rejection != CorrectionRejection::kNone && !(config.reject_low < config.reject_high))
    return fail(
        ErrorCode::kInvalidArgument,
        "rejection keeps [{}, {}], which is empty: the low bound must be below the high one",
        config.reject_low, config.reject_high);
  return {};
}

Correction correct(const CorrectionConfig& config, std::span<const std::int64_t> offsets,
                   std::span<const float> logp_old, std::span<const float> logp_rollout) {
  WEFT_CHECK(logp_old.size() == logp_rollout.size(), "{} and {} log-probabilities", logp_old.size(),
             logp_rollout.size());
  const std::size_t n = logp_old.size();
  Correction result;
  if (config.weight != CorrectionWeight::kNone) result.weight.assign(n, 1.0F);
  if (config.rejection != CorrectionRejection::kNone) result.keep.assign(n, 1);
  double ratio_sum = 0, ratio_squares = 0;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const auto begin = static_cast<std::size_t>(offsets[i]);
    const auto end = static_cast<std::size_t>(offsets[i + 1]);
    double log_sum = 0;
    for (std::size_t t = begin; t < end; ++t) {
      const double log_ratio = static_cast<double>(logp_old[t]) - logp_rollout[t];
      const double ratio = ratio_of(log_ratio);
      log_sum += log_ratio;
      ratio_sum += ratio;
      ratio_squares += ratio * ratio;
      result.mismatch_mean += std::abs(log_ratio);
      result.mismatch_max = std::max(result.mismatch_max, std::abs(log_ratio));
      if (config.weight == CorrectionWeight::kToken)
        result.weight[t] = static_cast<float>(std::min(ratio, config.cap));
    }
    if (config.weight == CorrectionWeight::kSequence)
      for (std::size_t t = begin; t < end; ++t)
        result.weight[t] = static_cast<float>(std::min(ratio_of(log_sum), config.cap));
    if (!result.keep.empty()) reject(config, begin, end, logp_old, logp_rollout, result.keep);
  }
  if (n > 0) {
    result.mismatch_mean /= static_cast<double>(n);
    if (ratio_squares > 0)
      result.effective_sample_size =
          ratio_sum * ratio_sum / (static_cast<double>(n) * ratio_squares);
  }
  double kept = 0, weight_sum = 0;
  for (std::size_t t = 0; t < n; ++t) {
    const bool keep = result.keep.empty() || result.keep[t] != 0;
    if (!keep) result.rejected_tokens += 1;
    if (keep && !result.weight.empty()) {
      kept += 1;
      weight_sum += result.weight[t];
    }
  }
  if (config.normalize && weight_sum > 0)
    for (float& w : result.weight) w = static_cast<float>(w * kept / weight_sum);
  return result;
}

}  // namespace weft::rl
