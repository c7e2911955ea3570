// evaluate: how well a model predicts a text, and how far it is from another one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "weft/base/result.h"
#include "weft/base/thread_pool.h"
#include "weft/model/tokenizer.h"
#include "weft/nn/transformer.h"

namespace weft::serve {

struct EvaluateOptions {
  std::int64_t window = 512;  // tokens that see each other; each window starts afresh
  std::int64_t windows = 4;   // at most; 0 = as many as the text has
  // Positions at the start of a window that are context only; -1 = half of it, as
  // llama.cpp's perplexity program does it.
  std::int64_t skip = -1;
};

struct Evaluation {
  std::int64_t tokens = 0;  // predictions that were scored
  double perplexity = 0;    // exp(mean negative log-probability of the next token)
  // Against the reference (0 without one): mean and largest Kullback-Leibler
  // divergence D(reference || model) per position, and the share of positions at
  // which both have the same most probable token.
  double mean_kl = 0, max_kl = 0, same_best = 0;
};

// Cuts `text` into windows and scores the predictions of each. `reference` may be null
// and must have the same vocabulary. Needs memory for 2 window x vocabulary floats.
// Fails if the text is shorter than one window, or its ids outside the vocabulary.
Result<Evaluation> evaluate(std::shared_ptr<const nn::TransformerWeights> weights,
                            std::shared_ptr<const nn::TransformerWeights> reference,
                            std::span<const model::TokenId> text, const EvaluateOptions& options,
                            ThreadPool& pool);

}  // namespace weft::serve
