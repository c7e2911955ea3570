// Sampling: from one row of logits to one token, reproducibly.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/result.h"
#include "weft/base/rng.h"
#include "weft/model/tokenizer.h"

namespace weft::serve {

namespace constrain {
class Constraint;
}

inline constexpr std::int64_t kMaxTopLogprobs = 1000;

struct SamplingParams {
  std::int64_t max_tokens = 256;
  float temperature = 0.0F;  // 0 = greedy (lowest id wins ties)
  std::int64_t top_k = 0;    // 0 = off
  float top_p = 1.0F;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;  // over prompt and reply, as in transformers
  float frequency_penalty = 0.0F;   // over the reply, as in OpenAI's API
  float presence_penalty = 0.0F;
  std::uint64_t seed = 0;
  // Which of several replies that share a seed this is (the n of an API call, the
  // index in a group of samples, the line of a file of prompts): equal prompts with
  // different streams get independent draws.
  std::uint64_t stream = 0;
  std::vector<std::string> stop;  // the reply ends before the first of these
  std::vector<std::pair<model::TokenId, float>> logit_bias;
  std::int64_t top_logprobs = -1;  // -1 = no log-probabilities, 0 = the sampled token's only
  bool ignore_eos = false;
  // What the reply may be; null = anything. The reply ends where nothing can be added.
  // docs/constrained-output.md.
  std::shared_ptr<const constrain::Constraint> constraint;
};
Status validate(const SamplingParams& params);  // names the field

struct TokenLogprob {
  model::TokenId token;
  float logprob;
};
struct SampledToken {
  model::TokenId token = -1;
  // Of the model's own distribution at `temperature` (1 if greedy), before
  // truncation and penalties: what the trainer recomputes. 0 if top_logprobs is -1.
  float logprob = 0.0F;
  std::vector<TokenLogprob> top;  // the most probable first; lowest id first among equals
};

// One token from one row of logits, in this order (transformers' order):
//   1. repetition_penalty on every distinct token of prompt and reply (a positive
//      logit is divided by it, another one multiplied), then frequency_penalty times
//      the count and presence_penalty once for every token of the reply, then
//      logit_bias; then tokens whose bit in `allowed` is not set are taken out (empty =
//      all are allowed), so what is left keeps its proportions;
//   2. temperature 0: the largest logit; else division by the temperature;
//   3. top_k: the k largest logits (lowest ids among equals);
//   4. top_p: of those, renormalised, the smallest set of most probable tokens whose
//      mass reaches top_p;
//   5. min_p: of those, the ones with at least min_p times the largest probability;
//   6. the draw: the first token, in order of ids, at which the running sum of the
//      kept probabilities passes u times their total (in order of falling
//      probability when 3 or 4 is on). u is draw number `position` of the stream
//      (seed, kSample, stream), where `position` is that of the new token in its
//      sequence. So a token depends on its own row, history and coordinates alone.
// A row without any number in it (NaN throughout: damaged weights, or nothing but
// -infinity among what is allowed) gives token -1.
// Safe to call from many threads.
SampledToken sample(std::span<const float> logits, const SamplingParams& params,
                    std::span<const model::TokenId> prompt, std::span<const model::TokenId> reply,
                    std::int64_t position, std::span<const std::uint64_t> allowed = {});

}  // namespace weft::serve
