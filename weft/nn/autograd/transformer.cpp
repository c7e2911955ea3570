#include "weft/nn/autograd/transformer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace weft::nn::autograd {
namespace {

Vector frozen(const std::vector<float>& values) {
  Vector vector;
  if (!values.empty()) {
    // The weights are immutable and no gradient is defined: nothing writes here.
    vector.value = at::from_blob(const_cast<float*>(values.data()),
                                 {static_cast<std::int64_t>(values.size())}, at::kFloat);
  }
  return vector;
}

Matrix frozen(const PackedMatrix& packed) {
  Matrix matrix;
  matrix.packed = packed;
  return matrix;
}

void grow_rope(Model& model, const PackedBatch& batch) {
  if (model.config.learned_positions || batch.positions.empty()) return;
  const std::int64_t needed =
      *std::max_element(batch.positions.begin(), batch.positions.end()) + std::int64_t{1};
  if (model.rope.rotary_dim != 0 && model.rope.positions() >= needed) return;
  const std::int64_t rounded = std::max<std::int64_t>((needed + 255) / 256 * 256, 256);
  model.rope = make_rope_table(model.config, rounded);
}

}  // namespace

Model frozen_model(std::shared_ptr<const TransformerWeights> weights) {
  Model model;
  const TransformerWeights& w = *weights;
  model.config = w.config;
  model.embedding = frozen(w.embedding);
  model.lm_head = frozen(w.lm_head);
  model.positions = frozen(w.positions);
  model.final_norm = frozen(w.final_norm);
  model.final_norm_bias = frozen(w.final_norm_bias);
  for (const LayerWeights& from : w.layers) {
    Layer layer;
    layer.attention_norm = frozen(from.attention_norm);
    layer.attention_norm_bias = frozen(from.attention_norm_bias);
    layer.mlp_norm = frozen(from.mlp_norm);
    layer.mlp_norm_bias = frozen(from.mlp_norm_bias);
    layer.q_norm = frozen(from.q_norm);
    layer.k_norm = frozen(from.k_norm);
    layer.qkv = frozen(from.qkv);
    layer.o = frozen(from.o);
    layer.gate_up = frozen(from.gate_up);
    layer.down = frozen(from.down);
    layer.qkv_bias = frozen(from.qkv_bias);
    layer.o_bias = frozen(from.o_bias);
    layer.gate_up_bias = frozen(from.gate_up_bias);
    layer.down_bias = frozen(from.down_bias);
    model.layers.push_back(std::move(layer));
  }
  model.weights = std::move(weights);
  return model;
}

ForwardOutputs forward(Model& model, Run& run, const ForwardOptions& options) {
  const model::ModelConfig& config = model.config;
  const auto eps = static_cast<float>(config.norm_eps);
  grow_rope(model, run.batch);
  SegmentKv kv(run.batch, config.kv_heads, config.head_dim);

  const bool trains = at::GradMode::is_enabled();
  const at::TensorOptions like = model.embedding.value.defined() ? model.embedding.value.options()
                                                                 : at::TensorOptions(at::kFloat);
  const at::Tensor anchor = at::zeros({1}, like).set_requires_grad(trains);
  at::Tensor x = embedding(run, anchor, model.embedding, model.positions,
                           trains ? &model.embedding_gradient : nullptr);
  at::Tensor delta;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const Layer& layer = model.layers[i];
    AttentionConfig attention_config;
    attention_config.shape = {config.heads, config.kv_heads, config.head_dim,
                              1.0F / std::sqrt(static_cast<float>(config.head_dim))};
    if (config.sliding_window > 0 && (config.sliding_layers.empty() || config.sliding_layers[i])) {
      attention_config.shape.window = config.sliding_window;
    }
    const bool bf16 = layer.qkv.packed.compute() == Compute::kBF16;
    attention_config.shape.layout = kv_layout(bf16, config.head_dim);
    attention_config.norm_eps = eps;
    attention_config.rope = config.learned_positions ? nullptr : &model.rope;
    attention_config.kv = &kv;
    attention_config.bf16_backward = bf16;

    at::Tensor qkv, up;
    std::tie(x, qkv) =
        norm_linear(run, x, delta, {&layer.attention_norm, &layer.attention_norm_bias, eps},
                    layer.qkv, layer.qkv_bias);
    delta = linear(run, attention(run, qkv, layer.q_norm, layer.k_norm, attention_config), layer.o,
                   layer.o_bias);
    const NormParameters mlp_norm{&layer.mlp_norm, &layer.mlp_norm_bias, eps};
    if (config.gated_mlp) {
      std::tie(x, delta) = gated_mlp(run, x, delta, mlp_norm,
                                     {.gate_up = &layer.gate_up,
                                      .down = &layer.down,
                                      .gate_up_bias = &layer.gate_up_bias,
                                      .down_bias = &layer.down_bias});
    } else {
      std::tie(x, up) = norm_linear(run, x, delta, mlp_norm, layer.gate_up, layer.gate_up_bias);
      delta = linear(run, gelu(run, up, config.activation == model::Activation::kGeluTanh),
                     layer.down, layer.down_bias);
    }
  }
  const at::Tensor chosen = add_select(run, x, delta);
  const at::Tensor states =
      add_norm(run, chosen, {}, model.final_norm, model.final_norm_bias, eps).second;

  ForwardOutputs out;
  const LogProbs log = log_probs(run, states, model.lm_head, options.temperature, options.entropy,
                                 options.max_logit_rows);
  out.logprob = log.logprob;
  out.entropy = log.entropy;
  if (options.values) out.value = value_head(run, states, model.value_weight, model.value_bias);
  return out;
}

}  // namespace weft::nn::autograd
