// The decoder-only families over the functions of functions.h: nn::Transformer's
// forward pass, differentiable.
#pragma once

#include <memory>
#include <vector>

#include "weft/nn/autograd/functions.h"
#include "weft/nn/transformer.h"

namespace weft::nn::autograd {

struct Layer {
  Vector attention_norm, attention_norm_bias, mlp_norm, mlp_norm_bias, q_norm, k_norm;
  Matrix qkv, o, gate_up, down;
  Vector qkv_bias, o_bias, gate_up_bias, down_bias;
};

struct Model {
  model::ModelConfig config;
  Matrix embedding, lm_head;  // tied: the same value, grad and packs
  Vector positions, final_norm, final_norm_bias;
  std::vector<Layer> layers;
  Vector value_weight, value_bias;  // undefined: no value head
  RopeTable rope;                   // grown by forward()
  EmbeddingGradient embedding_gradient;
  // Keeps what `packed` and frozen vectors point into.
  std::shared_ptr<const TransformerWeights> weights;
};

// A frozen model over packed weights: for forward passes without gradients.
Model frozen_model(std::shared_ptr<const TransformerWeights> weights);

struct ForwardOptions {
  float temperature = 1.0F;
  bool entropy = false;
  bool values = false;
  std::int64_t max_logit_rows = 2048;
};
struct ForwardOutputs {
  at::Tensor logprob, entropy, value;  // [targets]; the last two undefined unless asked
};
// Under grad mode the outputs carry the graph; `run` and `model` must outlive it.
ForwardOutputs forward(Model& model, Run& run, const ForwardOptions& options);

}  // namespace weft::nn::autograd
