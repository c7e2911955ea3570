// What one step reports: a line of metrics.jsonl.
#pragma once

#include <cstdint>
#include <string>

#include "weft/base/json.h"

namespace weft::rl {

// Fractions are of 1, entropies and divergences in nats, times in seconds.
struct StepMetrics {
  std::int64_t step = 0;     // counted from 1
  std::int64_t version = 0;  // of the weights that the batch was sampled from
  std::int64_t samples = 0, groups = 0, tokens = 0;
  double reward_mean = 0, reward_min = 0, reward_max = 0, reward_deviation = 0;
  double exact = 0;          // samples that are entirely right
  double pass_at_group = 0;  // groups with an exact sample (pass@k for k = group)
  double advantage_min = 0, advantage_max = 0;
  double objective = 0, policy_objective = 0, value_loss = 0;
  double kl_reference = 0;  // k3 to the first weights, with a reference
  double kl_coefficient = 0;
  double approx_kl = 0;  // k3 of the update, new weights against old
  double clip_low = 0, clip_high = 0, dual_clip = 0;
  double entropy = 0;  // mean over the sampled tokens
  double ratio_max = 0;
  double effective_sample_size = 1;
  double mismatch_mean = 0, mismatch_max = 0;  // |logp_rollout - logp_train|
  double length_mean = 0, length_max = 0, cut = 0;
  double filtered_groups = 0;  // share of sampled groups that dynamic sampling dropped
  std::int64_t sampled_groups = 0, reward_errors = 0, dropped_groups = 0;
  double grad_norm = 0, lr = 0;
  bool skipped = false;  // the update was not applied
  std::string skip_reason;
  bool entropy_alarm = false;
  double generate_s = 0, reward_s = 0, logp_s = 0, update_s = 0, sync_s = 0, total_s = 0;
  double tokens_per_s = 0;  // sampled tokens over generate_s
};

// Everything but the times is the same in every run with the same configuration;
// the times lie under "time".
Json to_json(const StepMetrics& metrics);

// A greedy evaluation: a line of evaluations.jsonl, with some replies.
struct EvaluationMetrics {
  std::int64_t step = 0, prompts = 0;
  double exact = 0, reward = 0, length_mean = 0;
};

// Has the policy stopped exploring before it was right? True when over the last
// `kAlarmWindow` steps the mean entropy lay below `entropy_limit` and the exact rate
// below `exact_limit`. Pure: the caller keeps the means of the window.
inline constexpr std::int64_t kAlarmWindow = 20;
bool entropy_collapsed(double entropy, double exact, std::int64_t steps, double entropy_limit,
                       double exact_limit);

}  // namespace weft::rl
