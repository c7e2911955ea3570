// ModelConfig: the shape of a language model, whatever file it came from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"

namespace weft::model {

enum class Family { kLlama, kMistral, kQwen2, kQwen3, kGpt2 };
std::string_view to_string(Family family);

// How rotary angles are scaled for contexts longer than the trained one.
enum class RopeScaling { kNone, kLinear, kDynamic, kLlama3, kYarn };

// Rotary embedding over the first `rotary_dim` channels of a head, in the
// half-split form of Hugging Face (channel i pairs with i + rotary_dim/2). Files
// that hold interleaved pairs (GGUF `llama`, llama2.c) are permuted when read.
struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;              // Llama 3
  std::int64_t original_max_position = 0;                            // Llama 3, YaRN, dynamic
  double beta_fast = 32.0, beta_slow = 1.0, attention_factor = 0.0;  // YaRN; 0 = from `factor`
  std::int64_t rotary_dim = 0;                                       // 0 = head_dim
  std::vector<float> frequency_factors;  // GGUF rope_freqs.weight; empty = none

  bool operator==(const RopeConfig&) const = default;
};

enum class NormKind { kRms, kLayer };
enum class Activation { kSilu, kGeluTanh, kGelu };

struct ModelConfig {
  Family family = Family::kLlama;
  std::int64_t vocab_size = 0;
  std::int64_t hidden = 0;  // width of the residual stream
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;      // not always hidden / heads
  std::int64_t intermediate = 0;  // width of the MLP
  std::int64_t max_position = 0;
  double norm_eps = 1e-5;
  NormKind norm = NormKind::kRms;
  Activation activation = Activation::kSilu;
  bool gated_mlp = true;  // gate and up (Llama) or a plain two-layer MLP (GPT-2)
  bool tie_embeddings = false;
  bool learned_positions = false;  // GPT-2; no rotary then
  bool qkv_bias = false, attention_out_bias = false, mlp_bias = false;
  bool qk_norm = false;              // RMSNorm per head on q and k (Qwen3)
  std::int64_t sliding_window = 0;   // 0 = none; a query sees the last `sliding_window` positions
  std::vector<bool> sliding_layers;  // which layers use it; empty = all, where it is set
  RopeConfig rope;
  std::int64_t bos_token = -1;  // -1 = none
  std::vector<std::int64_t> eos_tokens;

  bool operator==(const ModelConfig&) const = default;
};

// Checks ranges and divisibility; the error names the field.
Status validate(const ModelConfig& config);

// Hugging Face config.json, both ways. Unsupported architectures, activations
// and mixtures of experts are refused by name.
Result<ModelConfig> config_from_json(const Json& json, std::string_view file);
Json config_to_json(const ModelConfig& config);

// Counts, from shapes alone.
struct ModelCounts {
  std::int64_t parameters = 0;            // tied embeddings once
  std::int64_t embedding_parameters = 0;  // token embedding (and untied head)
  std::int64_t flops_per_token = 0;  // forward matrix products: 2 per weight, without attention
  std::int64_t attention_flops_per_token_per_key = 0;  // QK^T and PV, all layers
  std::int64_t kv_elements_per_token = 0;              // 2 * layers * kv_heads * head_dim
};
ModelCounts count(const ModelConfig& config);

// Canonical tensor names are Hugging Face's Llama names for every family
// ("model.embed_tokens.weight", "model.layers.3.self_attn.q_proj.weight",
// "model.layers.3.mlp.up_proj.weight", "model.norm.weight", "lm_head.weight",
// "...q_proj.bias", "...self_attn.q_norm.weight"); GPT-2 adds
// "model.embed_positions.weight" and norm biases, its fused c_attn is split and
// its matrices are transposed to [out, in].
struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;  // [out, in] for matrices
};
// Every tensor that a model of this shape has, in file order.
std::vector<TensorSpec> tensor_specs(const ModelConfig& config);

}  // namespace weft::model
