// Policy objectives: J and its gradient with respect to the log-probabilities,
// entropies and values of the sampled tokens. J is to be maximised. Pure functions
// on plain arrays; whoever has the network multiplies these gradients in.
//
// A batch may be cut into micro-batches or shards at sequence borders: `counts`
// are those of the whole batch, so the parts' J and gradients simply add up.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weft/base/result.h"
#include "weft/rl/kl.h"

namespace weft::rl {

// rho = exp(clamp(log pi - log pi_old, +-20)), A the advantage.
enum class Objective : std::uint8_t {
  kPpoClip,  // min(rho A, clip(rho, 1 - low, 1 + high) A); A < 0 is bounded by dual_clip * A
  kGspo,     // sequence ratio exp(mean log-ratio), own gradient a token; Zheng et al. 2025
  kCispo,    // sg(clip(rho)) A log pi; MiniMax-M1, 2025
  kSapo      // (4 / tau) sigmoid(tau (rho - 1)) A; Gao et al. 2025
};
std::string_view to_string(Objective objective);

// What a token's term is multiplied by before it is added up.
enum class Aggregation : std::uint8_t {
  kTokenMean,              // 1 / tokens of the batch (DAPO)
  kSequenceMeanTokenMean,  // 1 / (sequences x own length) (GRPO as published)
  kSequenceMeanTokenSum,   // 1 / sequences
  kTokenSumOverConstant    // 1 / (sequences x constant) (Dr. GRPO)
};
std::string_view to_string(Aggregation aggregation);

struct LossConfig {
  Objective objective = Objective::kPpoClip;
  Aggregation aggregation = Aggregation::kTokenMean;
  double clip_low = 0.2, clip_high = 0.2;
  double dual_clip = 3.0;  // 0 = off; else > 1 (Ye et al. 2020)
  double sapo_tau_positive = 1.0, sapo_tau_negative = 1.05;
  double token_sum_constant = 0.0;  // kTokenSumOverConstant: the longest reply, in tokens
  double kl_coefficient = 0.0;      // of the KL in the loss; 0 needs no reference model
  KlEstimator kl_estimator = KlEstimator::kK3;
  double entropy_coefficient = 0.0;
  double value_coefficient = 0.5;  // used where there are values
  double value_clip = 0.2;         // 0 = off
  bool decoupled = false;          // weights are pi_old / pi_rollout (AReaL's decoupled PPO)
};
// Names what is wrong and why.
Status validate(const LossConfig& config);

// Sequence i owns tokens [offsets[i], offsets[i + 1]). Arrays have one entry a
// token; an empty span means "none".
struct LossTokens {
  std::span<const std::int64_t> offsets = {};
  std::span<const float> logp = {};      // of the policy that is being trained
  std::span<const float> logp_old = {};  // the same policy when the batch began
  std::span<const float> advantage = {};
  std::span<const float> weight = {};          // off-policy correction, a constant; empty = 1
  std::span<const std::uint8_t> keep = {};     // 0 = rejected, takes no part; empty = all
  std::span<const float> logp_reference = {};  // needed where kl_coefficient > 0
  std::span<const float> entropy = {};         // needed where entropy_coefficient > 0
  std::span<const float> value = {}, value_old = {}, returns = {};  // PPO's critic
};

// Of the whole batch, all micro-batches and shards together.
struct LossCounts {
  std::int64_t tokens = 0;     // kept
  std::int64_t sequences = 0;  // with at least one kept token
};
LossCounts count_tokens(std::span<const std::int64_t> offsets, std::span<const std::uint8_t> keep);

// What adds up over the parts of a batch.
struct LossSums {
  double objective = 0;  // J, with every part below
  double policy = 0;     // aggregated
  double kl = 0;         // aggregated, before its coefficient
  double entropy = 0;    // aggregated, before its coefficient
  double value = 0;      // aggregated, before its coefficient
  double tokens = 0;     // plain counts and sums over kept tokens from here on
  double clipped_low = 0, clipped_high = 0, dual_clipped = 0;
  double log_ratio = 0;  // sum of log pi - log pi_old
  double approx_kl = 0;  // sum of k3(log pi, log pi_old), unclamped
  double ratio_max = 0;  // a maximum, not a sum
  double value_clipped = 0;
  void add(const LossSums& other);
};

// dJ/d..., one a token; entropy and value stay empty where they are not used.
struct LossGradient {
  std::vector<float> logp, entropy, value;
};

LossSums policy_loss(const LossConfig& config, const LossCounts& counts, const LossTokens& tokens,
                     LossGradient& gradient);

}  // namespace weft::rl
