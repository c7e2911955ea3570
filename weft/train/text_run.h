// One training run over text: a run directory with config.toml, metrics.jsonl,
// checkpoints/ and samples.jsonl, resumable to the bit. docs/commands/train.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "weft/base/id.h"
#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/base/thread_pool.h"
#include "weft/model/tokenizer.h"
#include "weft/nn/transformer.h"
#include "weft/train/train_config.h"

namespace weft::train {

// Continues the sample prompt under the weights of `step`.
using Sampler = std::function<std::string(
    const std::shared_ptr<const nn::TransformerWeights>& weights,
    const std::shared_ptr<const model::Tokenizer>& tokenizer, std::int64_t step)>;

struct RunOptions {
  bool resume = false;  // from the newest intact checkpoint, if any
  bool quiet = false;
  const std::atomic<bool>* stop = nullptr;  // when set true: save, then return
  Sampler sampler;                          // empty: no samples
};

struct RunSummary {
  RunId run_id;
  std::filesystem::path directory, checkpoint;
  std::int64_t steps = 0, first_step = 0, parameters = 0, tokens = 0;  // this call's tokens
  double train_loss = 0.0, eval_loss = -1.0;  // nats a token; eval -1: none
  double seconds = 0.0, tokens_per_second = 0.0;
  bool interrupted = false;
};
Json to_json(const RunSummary& summary);

// Refuses a run directory that has checkpoints unless `resume`, and a resume whose
// configuration differs in more than steps, logging and sampling.
Result<RunSummary> train_text(const TrainConfig& config, const RunOptions& options,
                              ThreadPool& pool);

}  // namespace weft::train
