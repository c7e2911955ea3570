// From a model file's named tensors to the packed weights of the forward pass.
#include <algorithm>
#include <cstring>
#include <string>

#include "weft/nn/transformer.h"

namespace weft::nn {

namespace {

// Collects the tensors of one model; remembers the first failure's tensor.
class Builder {
 public:
  Builder(const model::ModelConfig& config, const model::WeightSet& weights, Compute compute,
          ThreadPool& pool)
      : config_(config), weights_(weights), compute_(compute), pool_(pool) {}

  Result<TransformerWeights> build();

 private:
  Result<std::vector<float>> vector(const std::string& name, std::int64_t size);
  // The biases of several matrices one after the other; empty if `present` is not set.
  Result<std::vector<float>> biases(const std::vector<std::string>& names, bool present,
                                    const std::vector<std::int64_t>& sizes);
  Result<PackedMatrix> matrix(const std::vector<std::string>& names,
                              const std::vector<std::int64_t>& rows, std::int64_t columns);
  Result<LayerWeights> layer(const std::string& prefix);

  const model::ModelConfig& config_;
  const model::WeightSet& weights_;
  Compute compute_;
  ThreadPool& pool_;
};

Result<std::vector<float>> Builder::vector(const std::string& name, std::int64_t size) {
  WEFT_ASSIGN(const TensorView view, weights_.get(name));
  if (view.elements() != size) {
    return fail(ErrorCode::kCorrupt, "tensor {} has {} elements where the configuration wants {}",
                name, view.elements(), size);
  }
  std::vector<float> values(static_cast<std::size_t>(size));
  WEFT_TRY(model::dequantize(view, values.data()));
  return values;
}

Result<std::vector<float>> Builder::biases(const std::vector<std::string>& names, bool present,
                                           const std::vector<std::int64_t>& sizes) {
  std::vector<float> all;
  if (!present) return all;
  for (std::size_t i = 0; i < names.size(); ++i) {
    WEFT_ASSIGN(const std::vector<float> one, vector(names[i] + ".bias", sizes[i]));
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

Result<PackedMatrix> Builder::matrix(const std::vector<std::string>& names,
                                     const std::vector<std::int64_t>& rows, std::int64_t columns) {
  std::vector<TensorView> views;
  bool mixed = false, quantized = true;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string name = names[i] + ".weight";
    WEFT_ASSIGN(TensorView view, weights_.get(name));
    if (view.shape.size() != 2 || view.shape[0] != rows[i] || view.shape[1] != columns) {
      std::string shape;
      for (const std::int64_t d : view.shape)
        shape += (shape.empty() ? "" : ", ") + std::to_string(d);
      return fail(ErrorCode::kCorrupt, "tensor {} is [{}] where the configuration wants [{}, {}]",
                  name, shape, rows[i], columns);
    }
    mixed = mixed || (!views.empty() && view.dtype != views.front().dtype);
    quantized = quantized && is_quantized(view.dtype);
    views.push_back(std::move(view));
  }
  const Compute compute =
      compute_ == Compute::kInt8 && !(quantized && !mixed) ? Compute::kBF16 : compute_;
  if (!mixed) return pack_matrix(views, compute, pool_);
  // Stacked matrices of several types (K-quant files store v finer than q and k)
  // have no common packed form: take their dequantised values.
  std::int64_t total = 0;
  for (const TensorView& view : views) total += view.elements();
  std::vector<float> values(static_cast<std::size_t>(total));
  std::int64_t at = 0;
  for (const TensorView& view : views) {
    WEFT_TRY(model::dequantize(view, values.data() + at));
    at += view.elements();
  }
  const TensorView stacked{
      reinterpret_cast<const std::byte*>(values.data()), DType::kF32, {total / columns, columns}};
  return pack_matrix({stacked}, compute, pool_);
}

Result<LayerWeights> Builder::layer(const std::string& prefix) {
  const std::int64_t hidden = config_.hidden, wide = config_.intermediate;
  const std::int64_t q_rows = config_.heads * config_.head_dim;
  const std::int64_t k_rows = config_.kv_heads * config_.head_dim;
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  const bool norm_bias = config_.norm == model::NormKind::kLayer;
  LayerWeights layer;
  WEFT_ASSIGN(layer.attention_norm, vector(prefix + "input_layernorm.weight", hidden));
  WEFT_ASSIGN(layer.mlp_norm, vector(prefix + "post_attention_layernorm.weight", hidden));
  WEFT_ASSIGN(layer.attention_norm_bias, biases({prefix + "input_layernorm"}, norm_bias, {hidden}));
  WEFT_ASSIGN(layer.mlp_norm_bias,
              biases({prefix + "post_attention_layernorm"}, norm_bias, {hidden}));
  if (config_.qk_norm) {
    WEFT_ASSIGN(layer.q_norm, vector(attention + "q_norm.weight", config_.head_dim));
    WEFT_ASSIGN(layer.k_norm, vector(attention + "k_norm.weight", config_.head_dim));
  }
  const std::vector<std::string> qkv{attention + "q_proj", attention + "k_proj",
                                     attention + "v_proj"};
  WEFT_ASSIGN(layer.qkv, matrix(qkv, {q_rows, k_rows, k_rows}, hidden));
  WEFT_ASSIGN(layer.qkv_bias, biases(qkv, config_.qkv_bias, {q_rows, k_rows, k_rows}));
  WEFT_ASSIGN(layer.o, matrix({attention + "o_proj"}, {hidden}, q_rows));
  WEFT_ASSIGN(layer.o_bias, biases({attention + "o_proj"}, config_.attention_out_bias, {hidden}));
  std::vector<std::string> up{mlp + "up_proj"};
  std::vector<std::int64_t> up_rows{wide};
  if (config_.gated_mlp) {
    up.insert(up.begin(), mlp + "gate_proj");
    up_rows.push_back(wide);
  }
  WEFT_ASSIGN(layer.gate_up, matrix(up, up_rows, hidden));
  WEFT_ASSIGN(layer.gate_up_bias, biases(up, config_.mlp_bias, up_rows));
  WEFT_ASSIGN(layer.down, matrix({mlp + "down_proj"}, {hidden}, wide));
  WEFT_ASSIGN(layer.down_bias, biases({mlp + "down_proj"}, config_.mlp_bias, {hidden}));
  return layer;
}

Result<TransformerWeights> Builder::build() {
  TransformerWeights all;
  all.config = config_;
  WEFT_ASSIGN(all.embedding, matrix({"model.embed_tokens"}, {config_.vocab_size}, config_.hidden));
  if (config_.learned_positions) {
    WEFT_ASSIGN(all.positions,
                vector("model.embed_positions.weight", config_.max_position * config_.hidden));
  }
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    WEFT_ASSIGN(LayerWeights one, layer("model.layers." + std::to_string(i) + "."));
    all.layers.push_back(std::move(one));
  }
  WEFT_ASSIGN(all.final_norm, vector("model.norm.weight", config_.hidden));
  WEFT_ASSIGN(all.final_norm_bias,
              biases({"model.norm"}, config_.norm == model::NormKind::kLayer, {config_.hidden}));
  if (config_.tie_embeddings) {
    all.lm_head = all.embedding;
  } else {
    WEFT_ASSIGN(all.lm_head, matrix({"lm_head"}, {config_.vocab_size}, config_.hidden));
  }
  return all;
}

}  // namespace

Result<std::shared_ptr<const TransformerWeights>> build_weights(const model::ModelConfig& config,
                                                                const model::WeightSet& weights,
                                                                Compute compute, ThreadPool& pool) {
  WEFT_TRY(model::validate(config));
  WEFT_ASSIGN(TransformerWeights all, Builder(config, weights, compute, pool).build());
  return std::make_shared<const TransformerWeights>(std::move(all));
}

}  // namespace weft::nn
