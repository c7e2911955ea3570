// Batch: one step's samples as flat arrays, and what the objective makes of them.
// The part of a step that is pure arithmetic; `weft rl replay` runs it again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/rl/advantage.h"
#include "weft/rl/config.h"
#include "weft/rl/correction.h"
#include "weft/rl/policy_loss.h"

namespace weft::rl {

// Sequence i owns the sampled tokens [offsets[i], offsets[i + 1]); sequences of a
// group are neighbours. Token arrays are empty where the run does not have them.
struct Batch {
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> group;    // [sequences]
  std::vector<float> reward;          // [sequences], penalties included
  std::vector<float> logp_rollout;    // [tokens], as the sampler gave them
  std::vector<float> logp_old;        // [tokens], the policy's when the step began
  std::vector<float> logp_reference;  // [tokens], the first weights'
  std::vector<float> value_old;       // [tokens], the critic's when the step began
  std::size_t sequences() const { return group.size(); }
  std::size_t tokens() const { return logp_rollout.size(); }
};

// What the objective needs beside the forward pass; fixed during a step.
struct Signal {
  std::vector<float> advantage;  // [tokens]
  std::vector<float> returns;    // [tokens], with a critic
  Correction correction;
  double kl_reference = 0;  // mean k3(pi_old, reference) a token, where there is one
};
// `kl_coefficient` is the controller's current one.
Signal make_signal(const RlConfig& config, double kl_coefficient, const Batch& batch);

// One update: sequences [begin, end) of the batch, what the forward pass gave for
// their tokens (in order), and what the objective returned.
struct Update {
  std::size_t begin = 0, end = 0;
  std::vector<float> logp, entropy, value;
  LossGradient gradient;
  LossSums sums;
};

// The objective on tokens of the sequences [begin, end), a run inside `update`;
// `logp`, `entropy` and `value` are theirs alone.
LossSums run_objective(const LossConfig& config, const LossCounts& counts, const Batch& batch,
                       const Signal& signal, std::size_t begin, std::size_t end,
                       std::span<const float> logp, std::span<const float> entropy,
                       std::span<const float> value, LossGradient& gradient);

// Counts of sequences [begin, end): what their sums are divided by.
LossCounts counts_of(const Batch& batch, const Signal& signal, std::size_t begin, std::size_t end);

// 0 down to -1, linearly over the last `buffer` of `max_tokens` (DAPO, equation 13).
double overlong_penalty(std::int64_t length, std::int64_t max_tokens, std::int64_t buffer);

}  // namespace weft::rl
