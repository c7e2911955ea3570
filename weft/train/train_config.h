// The configuration of `weft train`, as its TOML file says it: docs/commands/train.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "weft/base/config.h"
#include "weft/base/result.h"
#include "weft/model/config.h"
#include "weft/train/adamw.h"
#include "weft/train/schedule.h"

namespace weft::train {

struct TrainConfig {
  // [data]
  std::vector<std::string> files;  // UTF-8 text
  std::string tokenizer = "char";  // "char", or what model::load_tokenizer reads
  double eval_fraction = 0.05;     // the end of the text, kept out of training
  // [model]
  std::string from;  // a model to continue from; empty = random weights
  std::int64_t hidden = 128, layers = 4, heads = 4, kv_heads = 0, intermediate = 0;
  bool tie_embeddings = true;
  double rope_theta = 10000.0;
  // [train]
  std::int64_t steps = 1000, sequence_length = 128, batch = 16, micro_batch_tokens = 2048;
  std::int64_t seed = 0;
  std::string compute = "auto";  // auto, bf16, f32
  std::string device = "cpu";    // cpu, cuda, cuda:N, auto
  std::int64_t log_every = 1, eval_every = 100, eval_sequences = 32;
  std::int64_t checkpoint_every = 100, keep_checkpoints = 2;
  // [optimizer]
  double learning_rate = 1e-3, final_fraction = 0.1, max_grad_norm = 1.0;
  std::string schedule = "cosine";
  std::int64_t warmup_steps = 0, decay_steps = 0;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  // [sample]
  std::string sample_prompt;  // empty = no samples
  std::int64_t sample_tokens = 64;
  double sample_temperature = 0.8;
  // [run]
  std::string directory = "run";
};

// Declares every field; `config` must outlive the schema.
ConfigSchema schema_of(TrainConfig& config);
// What single fields cannot say (warm-up within the steps, ...).
Status validate(const TrainConfig& config);

Schedule schedule_of(const TrainConfig& config);
AdamWOptions adamw_of(const TrainConfig& config);
// The shape of a model from scratch over `vocab_size` tokens.
Result<model::ModelConfig> model_of(const TrainConfig& config, std::int64_t vocab_size);

}  // namespace weft::train
