// Small configurations of every family, for gradient checks.
#pragma once

#include <string>
#include <vector>

#include "weft/model/config.h"

namespace weft::train::test {

struct TinyModel {
  std::string name;
  model::ModelConfig config;
};

inline std::vector<TinyModel> tiny_models() {
  model::ModelConfig llama;
  llama.family = model::Family::kLlama;
  llama.vocab_size = 23;
  llama.hidden = 24;
  llama.layers = 2;
  llama.heads = 4;
  llama.kv_heads = 2;
  llama.head_dim = 6;
  llama.intermediate = 20;
  llama.max_position = 96;
  model::ModelConfig tied = llama;
  tied.tie_embeddings = true;
  tied.rope.theta = 100.0;
  model::ModelConfig mistral = llama;
  mistral.family = model::Family::kMistral;
  mistral.sliding_window = 5;
  model::ModelConfig qwen2 = llama;
  qwen2.family = model::Family::kQwen2;
  qwen2.qkv_bias = true;
  model::ModelConfig qwen3 = llama;
  qwen3.family = model::Family::kQwen3;
  qwen3.qk_norm = true;
  qwen3.head_dim = 8;
  model::ModelConfig gpt2 = llama;
  gpt2.family = model::Family::kGpt2;
  gpt2.kv_heads = 4;
  gpt2.norm = model::NormKind::kLayer;
  gpt2.activation = model::Activation::kGeluTanh;
  gpt2.gated_mlp = false;
  gpt2.learned_positions = true;
  gpt2.tie_embeddings = true;
  gpt2.qkv_bias = gpt2.attention_out_bias = gpt2.mlp_bias = true;
  return {{"llama", llama}, {"llama_tied", tied}, {"mistral", mistral},
          {"qwen2", qwen2}, {"qwen3", qwen3},     {"gpt2", gpt2}};
}

}  // namespace weft::train::test
