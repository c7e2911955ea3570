// Small random models, made in memory, for tests that need a model of some shape.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "weft/base/rng.h"
#include "weft/model/config.h"
#include "weft/model/weights.h"

namespace weft::test {

// A Llama shape of about 30 thousand parameters.
inline model::ModelConfig tiny_config() {
  model::ModelConfig config;
  config.vocab_size = 96;
  config.hidden = 32;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.intermediate = 64;
  config.max_position = 512;
  config.tie_embeddings = true;
  return config;
}

// F32 weights: normal with deviation 1/sqrt(columns), gains around 1.
inline model::WeightSet random_weights(const model::ModelConfig& config, std::uint64_t seed) {
  model::WeightSet weights;
  std::uint64_t tensor = 0;
  for (const model::TensorSpec& spec : model::tensor_specs(config)) {
    TensorView view;
    view.shape = spec.shape;
    auto values = std::make_shared<std::vector<float>>(static_cast<std::size_t>(view.elements()));
    Rng rng(seed, RngUse::kTest, ++tensor);
    const bool gain = spec.shape.size() == 1;
    const float scale = gain ? 0.2F : 1.5F / std::sqrt(static_cast<float>(view.columns()));
    const bool bias = spec.name.ends_with("bias");
    for (float& value : *values) value = scale * rng.next_normal() + (gain && !bias ? 1.0F : 0.0F);
    view.data = reinterpret_cast<const std::byte*>(values->data());
    weights.add({spec.name, view}, values);
  }
  return weights;
}

}  // namespace weft::test
