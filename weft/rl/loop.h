// The synchronous post-training loop: publish weights, sample, score, update.
// One process, one thread besides the compute pool.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/base/thread_pool.h"
#include "weft/rl/config.h"
#include "weft/rl/metrics.h"
#include "weft/rl/rollout.h"
#include "weft/rl/run_directory.h"

namespace weft::rl {

// What the loop tells whoever watches; any may be empty. Called between steps, on
// the loop's thread.
struct LoopEvents {
  // Once, before the first step: what is trained on what.
  std::function<void(const std::string& model, std::int64_t parameters, const RlConfig&)> on_start;
  std::function<void(const StepMetrics&, const std::vector<Group>&)> on_step;
  std::function<void(const EvaluationMetrics&, const std::vector<EvaluatedReply>&)> on_evaluation;
  std::function<void(const std::string&)> on_message;  // one line: a warning, a phase
};

struct LoopOptions {
  std::filesystem::path run;                // the run directory
  bool resume = false;                      // `config` is then the one stored there
  const std::atomic<bool>* stop = nullptr;  // set: ends after the current step, resumable
};

// After so many steps in a row in which dynamic sampling found every reply right, a
// run ends: there is nothing left to learn from.
inline constexpr std::int64_t kLearnedWindow = 3;

struct LoopResult {
  RunId run_id;
  std::int64_t steps = 0;  // done, with those before a resume
  bool interrupted = false;
  bool learned = false;  // ended before `steps`: see kLearnedWindow
  StepMetrics last;
  EvaluationMetrics first_evaluation, last_evaluation, best_evaluation;
  double mismatch_max = 0;  // largest |logp_rollout - logp_train| of this process
  std::int64_t skipped = 0, reward_errors = 0;
  std::int64_t alarm_step = 0;  // when the entropy alarm first went; 0 = never
};

// Runs a resolved configuration to its end (or until `stop`). Leaves in the run
// directory: metrics, evaluations, checkpoints, dumps, and the trained model in
// `model/`.
Result<LoopResult> run_loop(const RlConfig& config, const LoopOptions& options,
                            const LoopEvents& events, ThreadPool& pool);

}  // namespace weft::rl
