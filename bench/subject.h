// What is measured: a model in several formats, and our engine running it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "weft/base/dtype.h"
#include "weft/base/result.h"
#include "weft/base/thread_pool.h"
#include "weft/model/load.h"
#include "weft/nn/matmul.h"
#include "weft/nn/transformer.h"
#include "weft/serve/engine.h"

namespace weft::bench {

// The model of `options` as a GGUF file of `type`, or (kDirectory) as a folder of
// BF16 safetensors that transformers loads. Made once with `weft model convert`
// and kept in the cache.
Result<std::filesystem::path> gguf_of(const BenchOptions& options, DType type);
Result<std::filesystem::path> directory_of(const BenchOptions& options);

// A loaded model and its engine.
struct Subject {
  model::Model model;
  std::shared_ptr<const nn::TransformerWeights> weights;
  std::unique_ptr<serve::Engine> engine;

  // Of one pass without the output layer, and of the output layer alone.
  double body_bytes = 0;
  double body_flops_per_token = 0;
  double head_bytes = 0;
  double head_flops_per_token = 0;
  bool int8 = false;
};
Result<std::unique_ptr<Subject>> load_subject(const std::filesystem::path& path,
                                              nn::Compute compute, ThreadPool& pool);

// Products of queries, keys and values for one token at `position`.
double attention_flops(const model::ModelConfig& config, double position);

// `count` plain tokens, others for each (`salt`, place), so that no prefix is
// shared with an earlier prompt.
std::vector<model::TokenId> prompt_tokens(const model::ModelConfig& config, std::uint64_t salt,
                                          std::int64_t count);

// Submits `sequences` prompts of `prompt` tokens and steps the engine; gives the
// seconds from all having their first token to `new_tokens` more each.
Result<double> decode_seconds(Subject& subject, std::uint64_t salt, int sequences,
                              std::int64_t prompt, std::int64_t new_tokens);
// Seconds from submitting all to the last token of all.
Result<double> generate_seconds(Subject& subject, std::uint64_t salt, int sequences,
                                std::int64_t prompt, std::int64_t new_tokens, float temperature);

}  // namespace weft::bench
