#include "weft/rl/small_model.h"

#include <cmath>

#include "weft/base/rng.h"

namespace weft::rl {

model::ModelConfig small_model_config(const model::Tokenizer& tokenizer) {
  model::ModelConfig c;
  c.family = model::Family::kLlama;
  c.vocab_size = tokenizer.vocab_size();
  c.hidden = 96;
  c.layers = 2;
  c.heads = 6;
  c.kv_heads = 6;
  c.head_dim = 16;
  c.intermediate = 256;
  c.max_position = 64;
  c.norm_eps = 1e-5;
  c.rope.theta = 10000.0;
  c.bos_token = tokenizer.bos();
  c.eos_tokens.assign(tokenizer.eos().begin(), tokenizer.eos().end());
  return c;
}

model::WeightSet small_model_weights(const model::ModelConfig& config, std::uint64_t seed) {
  model::WeightSet set;
  std::uint64_t number = 0;
  for (const model::TensorSpec& spec : model::tensor_specs(config)) {
    std::int64_t elements = 1;
    for (std::int64_t d : spec.shape) elements *= d;
    auto data = std::make_shared<std::vector<float>>(static_cast<std::size_t>(elements), 1.0F);
    if (spec.shape.size() == 2) {
      double deviation = 1.0 / std::sqrt(static_cast<double>(spec.shape[1]));
      if (spec.name == "model.embed_tokens.weight") deviation = 0.5;
      if (spec.name == "lm_head.weight") deviation = 0.01;
      Rng rng(seed, RngUse::kInit, number);
      for (float& w : *data) w = static_cast<float>(deviation * rng.next_normal());
    }
    ++number;
    const TensorView view{reinterpret_cast<const std::byte*>(data->data()), DType::kF32,
                          spec.shape};
    set.add({spec.name, view}, data);
  }
  return set;
}

}  // namespace weft::rl
