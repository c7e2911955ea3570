#include "weft/model/config.h"

#include <cmath>

#include "weft/base/dtype.h"

namespace weft::model {
namespace {

Status in_range(std::string_view field, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) {
    return fail(ErrorCode::kOutOfRange, "{} is {}; it must be {} to {}", field, value, low, high);
  }
  return {};
}

Status validate_rope(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  const std::int64_t dim = rope.rotary_dim == 0 ? config.head_dim : rope.rotary_dim;
  WEFT_TRY(in_range("rope.rotary_dim", dim, 2, config.head_dim));
  if (dim % 2 != 0)
    return fail(ErrorCode::kOutOfRange, "rope.rotary_dim is {}; it must be even", dim);
  if (!std::isfinite(rope.theta) || rope.theta <= 0) {
    return fail(ErrorCode::kOutOfRange, "rope.theta is {}; it must be positive", rope.theta);
  }
  if (!std::isfinite(rope.factor) || rope.factor <= 0) {
    return fail(ErrorCode::kOutOfRange, "rope.factor is {}; it must be positive", rope.factor);
  }
  if (!std::isfinite(rope.attention_factor) || rope.attention_factor < 0) {
    return fail(ErrorCode::kOutOfRange, "rope.attention_factor is {}; it must not be negative",
                rope.attention_factor);
  }
  const bool needs_original =
      rope.scaling == RopeScaling::kLlama3 || rope.scaling == RopeScaling::kYarn;
  WEFT_TRY(in_range("rope.original_max_position", rope.original_max_position,
                    needs_original ? 1 : 0, std::int64_t{1} << 31));
  if (rope.scaling == RopeScaling::kLlama3 &&
      !(rope.low_freq_factor > 0 && rope.high_freq_factor > rope.low_freq_factor &&
        std::isfinite(rope.high_freq_factor))) {
    return fail(ErrorCode::kOutOfRange,
                "rope.high_freq_factor is {} and low_freq_factor {}; high must be above low, and "
                "low above 0",
                rope.high_freq_factor, rope.low_freq_factor);
  }
  if (rope.scaling == RopeScaling::kYarn &&
      !(std::isfinite(rope.beta_fast) && std::isfinite(rope.beta_slow) && rope.beta_fast > 0 &&
        rope.beta_slow > 0)) {
    return fail(ErrorCode::kOutOfRange,
                "rope.beta_fast is {} and beta_slow {}; both must be positive", rope.beta_fast,
                rope.beta_slow);
  }
  if (!rope.frequency_factors.empty()) {
    if (static_cast<std::int64_t>(rope.frequency_factors.size()) != dim / 2) {
      return fail(ErrorCode::kOutOfRange,
                  "rope.frequency_factors has {} entries; {} rotary channels need {}",
                  rope.frequency_factors.size(), dim, dim / 2);
    }
    for (const float factor : rope.frequency_factors) {
      if (!std::isfinite(factor) || factor <= 0) {
        return fail(ErrorCode::kOutOfRange, "rope.frequency_factors holds {}; all must be positive",
                    factor);
      }
    }
  }
  return {};
}

std::int64_t elements(const TensorSpec& spec) {
  std::int64_t n = 1;
  for (const std::int64_t d : spec.shape) n *= d;
  return n;
}

}  // namespace

std::string_view to_string(Family family) {
  switch (family) {
    case Family::kLlama:
      return "llama";
    case Family::kMistral:
      return "mistral";
    case Family::kQwen2:
      return "qwen2";
    case Family::kQwen3:
      return "qwen3";
    case Family::kGpt2:
      return "gpt2";
  }
  return "unknown";
}

// The upper limits are far above any published model and keep every count below 2^63.
Status validate(const ModelConfig& config) {
  WEFT_TRY(in_range("vocab_size", config.vocab_size, 1, std::int64_t{1} << 28));
  WEFT_TRY(in_range("hidden", config.hidden, 1, std::int64_t{1} << 20));
  WEFT_TRY(in_range("layers", config.layers, 1, 4096));
  WEFT_TRY(in_range("heads", config.heads, 1, 8192));
  WEFT_TRY(in_range("kv_heads", config.kv_heads, 1, config.heads));
  WEFT_TRY(in_range("head_dim", config.head_dim, 1, 8192));
  WEFT_TRY(in_range("intermediate", config.intermediate, 1, std::int64_t{1} << 24));
  WEFT_TRY(in_range("max_position", config.max_position, 1, std::int64_t{1} << 31));
  WEFT_TRY(in_range("sliding_window", config.sliding_window, 0, std::int64_t{1} << 31));
  if (config.heads % config.kv_heads != 0) {
    return fail(ErrorCode::kOutOfRange, "heads is {}, not a multiple of kv_heads {}", config.heads,
                config.kv_heads);
  }
  if (!std::isfinite(config.norm_eps) || config.norm_eps < 0 || config.norm_eps > 1) {
    return fail(ErrorCode::kOutOfRange, "norm_eps is {}; it must be between 0 and 1",
                config.norm_eps);
  }
  if (!config.sliding_layers.empty() &&
      static_cast<std::int64_t>(config.sliding_layers.size()) != config.layers) {
    return fail(ErrorCode::kOutOfRange, "sliding_layers has {} entries for {} layers",
                config.sliding_layers.size(), config.layers);
  }
  WEFT_TRY(in_range("bos_token", config.bos_token, -1, config.vocab_size - 1));
  for (const std::int64_t token : config.eos_tokens) {
    WEFT_TRY(in_range("eos_tokens", token, 0, config.vocab_size - 1));
  }
  return config.learned_positions ? Status{} : validate_rope(config);
}

std::vector<TensorSpec> tensor_specs(const ModelConfig& config) {
  std::vector<TensorSpec> specs;
  const auto add = [&](std::string name, std::vector<std::int64_t> shape, bool bias) {
    const std::int64_t rows = shape[0];
    specs.push_back({name + ".weight", std::move(shape)});
    if (bias) specs.push_back({name + ".bias", {rows}});
  };
  const bool norm_bias = config.norm == NormKind::kLayer;
  const std::int64_t q = config.heads * config.head_dim;
  const std::int64_t kv = config.kv_heads * config.head_dim;
  add("model.embed_tokens", {config.vocab_size, config.hidden}, false);
  if (config.learned_positions)
    add("model.embed_positions", {config.max_position, config.hidden}, false);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string block = fmt::format("model.layers.{}.", layer);
    add(block + "input_layernorm", {config.hidden}, norm_bias);
    add(block + "self_attn.q_proj", {q, config.hidden}, config.qkv_bias);
    add(block + "self_attn.k_proj", {kv, config.hidden}, config.qkv_bias);
    add(block + "self_attn.v_proj", {kv, config.hidden}, config.qkv_bias);
    add(block + "self_attn.o_proj", {config.hidden, q}, config.attention_out_bias);
    if (config.qk_norm) {
      add(block + "self_attn.q_norm", {config.head_dim}, false);
      add(block + "self_attn.k_norm", {config.head_dim}, false);
    }
    add(block + "post_attention_layernorm", {config.hidden}, norm_bias);
    if (config.gated_mlp)
      add(block + "mlp.gate_proj", {config.intermediate, config.hidden}, config.mlp_bias);
    add(block + "mlp.up_proj", {config.intermediate, config.hidden}, config.mlp_bias);
    add(block + "mlp.down_proj", {config.hidden, config.intermediate}, config.mlp_bias);
  }
  add("model.norm", {config.hidden}, norm_bias);
  if (!config.tie_embeddings) add("lm_head", {config.vocab_size, config.hidden}, false);
  return specs;
}

ModelCounts count(const ModelConfig& config) {
  ModelCounts counts;
  std::int64_t matrix_weights = 0;
  for (const TensorSpec& spec : tensor_specs(config)) {
    const std::int64_t n = elements(spec);
    counts.parameters += n;
    const bool looked_up = spec.name.starts_with("model.embed_");
    if (spec.name == "model.embed_tokens.weight" || spec.name == "lm_head.weight") {
      counts.embedding_parameters += n;
    }
    if (spec.shape.size() == 2 && !looked_up) matrix_weights += n;
  }
  if (config.tie_embeddings) matrix_weights += config.vocab_size * config.hidden;
  counts.flops_per_token = 2 * matrix_weights;
  counts.attention_flops_per_token_per_key = 4 * config.layers * config.heads * config.head_dim;
  counts.kv_elements_per_token = 2 * config.layers * config.kv_heads * config.head_dim;
  return counts;
}

}  // namespace weft::model
