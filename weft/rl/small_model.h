// The transformer of the small tasks: 2 layers, width 96, random weights.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/model/config.h"
#include "weft/model/tokenizer.h"
#include "weft/model/weights.h"

namespace weft::rl {

// A Llama of 224,064 parameters for a vocabulary of 16 (rl-loop.md measured with
// 229k).
model::ModelConfig small_model_config(const model::Tokenizer& tokenizer);

// Initial weights from Philox (seed, tensor, element): embeddings N(0, 0.5),
// matrices N(0, 1 / inputs), the head N(0, 0.01), so that the first policy is nearly
// uniform. The set owns its storage.
model::WeightSet small_model_weights(const model::ModelConfig& config, std::uint64_t seed);

}  // namespace weft::rl
