// The update of one step: from scored groups to new weights.
#pragma once

#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/rl/batch.h"
#include "weft/rl/dump.h"
#include "weft/rl/metrics.h"
#include "weft/rl/rollout.h"
#include "weft/train/policy_model.h"

namespace weft::rl {

struct UpdateInput {
  std::int64_t step = 0;
  double learning_rate = 0;
  double kl_coefficient = 0;
  std::shared_ptr<const nn::TransformerWeights> reference;  // null without a KL term
};

// Fills the parts of `metrics` that the update knows, and `dump` with everything that
// a replay needs. A step with numbers that are not finite, or with a probability
// ratio above config.max_ratio, changes no weight and sets metrics.skipped.
Status update_policy(const RlConfig& config, const UpdateInput& input,
                     const std::vector<Group>& groups, train::PolicyModel& policy, ThreadPool& pool,
                     StepMetrics& metrics, Dump& dump);

// Supervised update on the references of char tasks: -mean log-probability.
struct SupervisedExample {
  std::vector<model::TokenId> prompt, reply;
};
Result<double> supervised_update(const std::vector<SupervisedExample>& examples,
                                 double learning_rate, double max_grad_norm,
                                 train::PolicyModel& policy);

}  // namespace weft::rl
