// RlConfig: everything that decides what a run of `weft rl` computes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/config.h"
#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/rl/advantage.h"
#include "weft/rl/correction.h"
#include "weft/rl/policy_loss.h"

namespace weft::rl {

// Plain fields with the names of the TOML keys and flags. `algo` sets what the
// algorithm's name means (resolve()); keys given beside it win.
struct RlConfig {
  std::string task = "modadd";  // modadd, copy, sort, digits, words, gsm8k:FILE, jsonl:FILE
  std::string algo = "grpo";    // grpo, drgrpo, dapo, rloo, gspo, ppo, cispo, sapo, reinforce
  std::string model = {};       // empty: the small built-in transformer, from random weights
  std::string device = "cpu";  // of the trainer: cpu, cuda, cuda:N, auto; the sampler is on the CPU
  std::string compute = "auto";  // f32, bf16; auto = f32 for the built-in model, else bf16
  std::int64_t steps = 0;        // 0 = the task's default
  std::int64_t prompts = 0;      // a step; 0 = the task's default
  std::int64_t group = 8;        // replies a prompt
  std::int64_t max_tokens = 0;   // of a reply; 0 = the task's default
  double temperature = 1.0;
  std::int64_t seed = 0;

  double lr = 0;  // 0 = the task's default
  std::string schedule = "constant";
  std::int64_t warmup_steps = 0;
  double weight_decay = 0.01;
  double max_grad_norm = 1.0;
  std::int64_t mini_batches = 1;  // updates a batch and epoch
  std::int64_t epochs = 1;
  std::int64_t micro_batch_tokens = 2048;
  std::int64_t sft_steps = 0;  // supervised steps on right answers before (char tasks)

  // Objective. Negative or "auto" = as the algorithm says.
  std::string advantage = "auto";    // grpo, drgrpo, rloo, gae, reinforce-baseline
  std::string objective = "auto";    // ppo-clip, gspo, cispo, sapo
  std::string aggregation = "auto";  // token-mean, seq-mean-token-mean, ...
  double clip_low = -1, clip_high = -1, dual_clip = -1;
  double entropy = 0;
  double kl = 0;               // coefficient; 0 needs no reference model
  std::string kl_in = "loss";  // loss, reward
  std::string kl_estimator = "k3";
  double kl_target = 0;  // above 0: the coefficient adapts to reach it
  double kl_horizon = 10000;
  double gamma = 1.0, lambda = 1.0;  // GAE
  double value_coefficient = 0.5, value_clip = 0.5;
  bool dynamic_sampling = false;  // drop groups of equal rewards and sample more (dapo: on)
  std::int64_t dynamic_attempts = 10;
  std::int64_t overlong_tokens = 0;  // reward falls by up to 1 over the last so many; 0 = off

  // Off-policy correction; without effect in a synchronous run whose sampler is exact.
  std::string correction = "none";  // none, token, sequence
  double correction_cap = 2.0;
  bool correction_normalize = false;
  std::string rejection = "none";  // none, token, sequence-mean, sequence-sum, sequence-max
  std::string rejection_statistic = "k1";
  double rejection_low = -1, rejection_high = 1;
  bool decoupled = false;  // clip around pi_old, weight by pi_old / pi_rollout
  bool bypass = true;      // pi_old := pi_rollout; off: a forward pass recomputes it

  std::string verifier = {};  // jsonl: the command
  double verifier_seconds = 10;
  std::int64_t verifier_memory_mib = 2048;

  std::int64_t eval_every = 0;        // greedy evaluation; 0 = the task's default
  std::int64_t checkpoint_every = 0;  // 0 = at the end only
  std::int64_t keep_checkpoints = 2;
  std::int64_t dump_steps = 0;  // the first so many batches are kept for `weft rl replay`
  double max_ratio = 1e4;       // a larger probability ratio skips the step
  double entropy_alarm = 0.1;   // nats; raised when the mean entropy falls below while the
                                // exact rate is not yet `entropy_alarm_exact`
  double entropy_alarm_exact = 0.75;
};

// A key of the configuration, for the command line: --max-tokens sets max_tokens.
struct ConfigKey {
  enum class Kind : std::uint8_t { kFlag, kNumber, kText };
  std::string name, help;
  Kind kind;
};
std::vector<ConfigKey> config_keys();

// Declares every key of a configuration file, bound to `config`.
void declare(RlConfig& config, ConfigSchema& schema);

// Fills in "auto" and 0 from the algorithm and the task, then checks everything.
// The error names the option and the reason. Idempotent.
Status resolve(RlConfig& config);

// Of a resolved configuration.
AdvantageKind advantage_kind(const RlConfig& config);
LossConfig loss_config(const RlConfig& config);
CorrectionConfig correction_config(const RlConfig& config);
bool uses_critic(const RlConfig& config);
bool uses_reference(const RlConfig& config);

Json to_json(const RlConfig& config);
Result<RlConfig> rl_config_from_json(const Json& json);

}  // namespace weft::rl
