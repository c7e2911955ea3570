// Sampling: from one row of logits to one token, reproducibly.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/result.h"
#include "weft/base/rng.h"
#include "weft/model/tokenizer.h"

namespace weft::serve {

struct SamplingParams {
  std::int64_t max_tokens = 256;
  float temperature = 0.0F;          // 0 = greedy (lowest id wins ties)
  std::int64_t top_k = 0;            // 0 = off
  float top_p = 1.0F;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;   // over prompt and reply, as in transformers
  float frequency_penalty = 0.0F;    // over the reply, as in OpenAI's API
  float presence_penalty = 0.0F;
  std::uint64_t seed = 0;
  std::vector<std::string> stop;     // the reply ends before the first of these
  std::vector<std::pair<model::TokenId, float>> logit_bias;
  std::int64_t top_logprobs = -1;    // -1 = no log-probabilities, 0 = the sampled token's only
  bool ignore_eos = false;
};
Status validate(const SamplingParams& params);  // names the field

struct TokenLogprob {
  model::TokenId token;
  float logprob;
};
struct SampledToken {
  model::TokenId token = -1;
  // Of the model's own distribution at `temperature` (1 if greedy), before
  // truncation and penalties: what the trainer recomputes.
  float logprob = 0.0F;
  std::vector<TokenLogprob> top;
};

// Draw number `position` of the stream (seed, kSample): depends on this row, its
// history and its coordinates alone. `logits` may be changed.
SampledToken sample(std::span<float> logits, const SamplingParams& params,
                    std::span<const model::TokenId> prompt,
                    std::span<const model::TokenId> reply, std::int64_t position);

}  // namespace weft::serve
