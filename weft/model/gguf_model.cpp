#include "weft/model/gguf_model.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "weft/model/row_order.h"

namespace weft::model {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

// GGUF name, canonical name (without ".weight" / ".bias"); llama.cpp's
// gguf-py/gguf/constants.py, TENSOR_NAMES.
constexpr std::array<Pair, 4> kModelNames = {{
    {"token_embd", "model.embed_tokens"},
    {"position_embd", "model.embed_positions"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
}};
constexpr std::array<Pair, 11> kBlockNames = {{
    {"attn_norm", "input_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
}};

// "PREFIX.<layer>.<middle>.<weight|bias>" or "<middle>.<weight|bias>".
struct NameParts {
  std::string_view layer;  // digits; empty: not in a block
  std::string_view middle;
  std::string_view suffix;  // ".weight" or ".bias"
};

std::optional<NameParts> split_name(std::string_view name, std::string_view prefix) {
  NameParts parts;
  for (const std::string_view suffix : {".weight", ".bias"}) {
    if (name.ends_with(suffix)) parts.suffix = name.substr(name.size() - suffix.size());
  }
  if (parts.suffix.empty()) return std::nullopt;
  name.remove_suffix(parts.suffix.size());
  if (!name.starts_with(prefix)) {
    parts.middle = name;
    return parts;
  }
  name.remove_prefix(prefix.size());
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot > 6) return std::nullopt;
  parts.layer = name.substr(0, dot);
  if (!std::ranges::all_of(parts.layer, [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  parts.middle = name.substr(dot + 1);
  return parts;
}

bool ends_in(std::string_view name, std::string_view middle) {
  return name.ends_with(fmt::format("{}.weight", middle)) ||
         name.ends_with(fmt::format("{}.bias", middle));
}

// A value that some files hold once and some as an array with one entry a layer.
Result<std::int64_t> per_layer_integer(const GgufFile& file, const std::string& key) {
  const GgufValue* value = file.find(key);
  if (value == nullptr || value->type != GgufType::kArray) return file.integer(key);
  WEFT_ASSIGN(const auto values, file.integers(key));
  if (values.empty())
    return fail(ErrorCode::kCorrupt, "{}: '{}' is an empty array", file.name(), key);
  if (std::ranges::any_of(values, [&](std::int64_t v) { return v != values.front(); })) {
    return fail(ErrorCode::kUnsupported,
                "{}: '{}' differs between layers, which Weft does not support", file.name(), key);
  }
  return values.front();
}

Status read_rope(const GgufFile& file, const std::string& arch, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  WEFT_ASSIGN(rope.theta, file.number_or(arch + ".rope.freq_base", 10000.0));
  WEFT_ASSIGN(rope.rotary_dim, file.integer_or(arch + ".rope.dimension_count", config.head_dim));
  if (rope.rotary_dim == config.head_dim) rope.rotary_dim = 0;
  if (rope.rotary_dim != 0 && config.family == Family::kLlama) {
    return fail(ErrorCode::kUnsupported,
                "{}: {}.rope.dimension_count is {} but heads have {} channels; Weft reads llama "
                "files whose "
                "rotary embedding covers the whole head",
                file.name(), arch, rope.rotary_dim, config.head_dim);
  }
  WEFT_ASSIGN(const std::string_view type, file.text_or(arch + ".rope.scaling.type", "none"));
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
  } else if (type != "none") {
    return fail(ErrorCode::kUnsupported,
                "{}: {}.rope.scaling.type is '{}'; Weft reads none, linear and yarn", file.name(),
                arch, type);
  }
  WEFT_ASSIGN(rope.factor, file.number_or(arch + ".rope.scaling.factor", 1.0));
  if (file.has(arch + ".rope.scale_linear")) {  // the key's name before 2023-11
    WEFT_ASSIGN(rope.factor, file.number(arch + ".rope.scale_linear"));
    if (rope.factor != 1.0) rope.scaling = RopeScaling::kLinear;
  }
  WEFT_ASSIGN(rope.original_max_position,
              file.integer_or(arch + ".rope.scaling.original_context_length", 0));
  WEFT_ASSIGN(rope.attention_factor, file.number_or(arch + ".rope.scaling.attn_factor", 0.0));
  WEFT_ASSIGN(rope.beta_fast, file.number_or(arch + ".rope.scaling.yarn_beta_fast", 32.0));
  WEFT_ASSIGN(rope.beta_slow, file.number_or(arch + ".rope.scaling.yarn_beta_slow", 1.0));
  if (const GgufTensor* factors = file.find_tensor("rope_freqs.weight")) {
    rope.frequency_factors.resize(static_cast<std::size_t>(factors->view.elements()));
    WEFT_TRY(dequantize(factors->view, rope.frequency_factors.data()));
  }
  return {};
}

Status read_tokens(const GgufFile& file, ModelConfig& config) {
  WEFT_ASSIGN(config.bos_token, file.integer_or("tokenizer.ggml.bos_token_id", -1));
  for (const std::string_view key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    if (!file.has(key)) continue;
    WEFT_ASSIGN(const std::int64_t token, file.integer(key));
    if (std::ranges::find(config.eos_tokens, token) == config.eos_tokens.end()) {
      config.eos_tokens.push_back(token);
    }
  }
  return {};
}

}  // namespace

std::string canonical_from_gguf_name(std::string_view name) {
  const auto parts = split_name(name, "blk.");
  if (!parts) return {};
  if (parts->layer.empty()) {
    for (const auto& [gguf, canonical] : kModelNames) {
      if (parts->middle == gguf) return fmt::format("{}{}", canonical, parts->suffix);
    }
    return {};
  }
  for (const auto& [gguf, canonical] : kBlockNames) {
    if (parts->middle == gguf)
      return fmt::format("model.layers.{}.{}{}", parts->layer, canonical, parts->suffix);
  }
  return {};
}

std::string gguf_from_canonical_name(std::string_view name) {
  const auto parts = split_name(name, "model.layers.");
  if (!parts) return {};
  if (parts->layer.empty()) {
    for (const auto& [gguf, canonical] : kModelNames) {
      if (parts->middle == canonical) return fmt::format("{}{}", gguf, parts->suffix);
    }
    return {};
  }
  for (const auto& [gguf, canonical] : kBlockNames) {
    if (parts->middle == canonical)
      return fmt::format("blk.{}.{}{}", parts->layer, gguf, parts->suffix);
  }
  return {};
}

Result<ModelConfig> config_from_gguf(const GgufFile& file) {
  WEFT_ASSIGN(const std::string_view architecture, file.text("general.architecture"));
  const std::string arch(architecture);
  ModelConfig config;
  if (arch == "llama") {
    config.family = Family::kLlama;
  } else if (arch == "qwen2") {
    config.family = Family::kQwen2;
  } else if (arch == "qwen3") {
    config.family = Family::kQwen3;
  } else if (arch == "gpt2") {
    config.family = Family::kGpt2;
  } else {
    return fail(ErrorCode::kUnsupported,
                "{}: its architecture '{}' is not one that Weft runs (llama, qwen2, qwen3, gpt2)",
                file.name(), arch);
  }
  WEFT_ASSIGN(const std::int64_t experts, file.integer_or(arch + ".expert_count", 0));
  if (experts > 0) {
    return fail(ErrorCode::kUnsupported, "{}: is a mixture of {} experts, which Weft does not run",
                file.name(), experts);
  }
  const GgufTensor* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) {
    return fail(ErrorCode::kNotFound,
                "{}: has no tensor 'token_embd.weight'; it holds a vocabulary without a model",
                file.name());
  }
  config.vocab_size = embedding->view.rows();
  WEFT_ASSIGN(config.hidden, file.integer(arch + ".embedding_length"));
  WEFT_ASSIGN(config.layers, file.integer(arch + ".block_count"));
  WEFT_ASSIGN(config.intermediate, per_layer_integer(file, arch + ".feed_forward_length"));
  WEFT_ASSIGN(config.heads, per_layer_integer(file, arch + ".attention.head_count"));
  config.kv_heads = config.heads;
  if (file.has(arch + ".attention.head_count_kv")) {
    WEFT_ASSIGN(config.kv_heads, per_layer_integer(file, arch + ".attention.head_count_kv"));
  }
  WEFT_ASSIGN(config.max_position, file.integer(arch + ".context_length"));
  if (config.heads <= 0) {
    return fail(ErrorCode::kCorrupt, "{}: {}.attention.head_count is {}", file.name(), arch,
                config.heads);
  }
  WEFT_ASSIGN(config.head_dim,
              file.integer_or(arch + ".attention.key_length", config.hidden / config.heads));
  WEFT_ASSIGN(const std::int64_t value_dim,
              file.integer_or(arch + ".attention.value_length", config.head_dim));
  if (value_dim != config.head_dim) {
    return fail(ErrorCode::kUnsupported,
                "{}: keys have {} channels a head and values {}; Weft needs them equal",
                file.name(), config.head_dim, value_dim);
  }
  const auto has = [&](std::string_view name) { return file.find_tensor(name) != nullptr; };
  config.tie_embeddings = !has("output.weight");
  config.qkv_bias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
  config.attention_out_bias = has("blk.0.attn_output.bias");
  config.mlp_bias = has("blk.0.ffn_up.bias");
  config.qk_norm = has("blk.0.attn_q_norm.weight");
  if (config.family == Family::kGpt2) {
    config.norm = NormKind::kLayer;
    config.activation = Activation::kGeluTanh;
    config.gated_mlp = false;
    config.learned_positions = true;
    WEFT_ASSIGN(config.norm_eps, file.number(arch + ".attention.layer_norm_epsilon"));
  } else {
    WEFT_ASSIGN(config.norm_eps, file.number(arch + ".attention.layer_norm_rms_epsilon"));
    WEFT_TRY(read_rope(file, arch, config));
    WEFT_ASSIGN(config.sliding_window, file.integer_or(arch + ".attention.sliding_window", 0));
    // Of the models whose files say `llama`, Mistral's have a window.
    if (arch == "llama" && config.sliding_window > 0) config.family = Family::kMistral;
  }
  // Files hold these as f32; the nearest short decimal is what the publisher wrote.
  config.norm_eps = std::stod(fmt::format("{}", static_cast<float>(config.norm_eps)));
  WEFT_TRY(read_tokens(file, config));
  if (auto valid = validate(config); !valid) return std::unexpected(valid.error().in(file.name()));
  return config;
}

Result<WeightSet> weights_from_gguf(const std::shared_ptr<const GgufFile>& file,
                                    const ModelConfig& config) {
  WeightSet set;
  for (const GgufTensor& tensor : file->tensors()) {
    if (tensor.name == "rope_freqs.weight") continue;  // in config.rope.frequency_factors
    if (ends_in(tensor.name, "attn_qkv")) {
      // Rows are q, k, v one after another: three views, no copy.
      const auto parts = split_name(tensor.name, "blk.");
      const std::int64_t head = config.head_dim;
      const std::array<std::pair<std::string_view, std::int64_t>, 3> pieces = {
          {{"q", config.heads * head},
           {"k", config.kv_heads * head},
           {"v", config.kv_heads * head}}};
      const bool matrix = tensor.view.shape.size() == 2;
      const std::int64_t rows = tensor.view.shape.empty() ? 0 : tensor.view.shape[0];
      const std::int64_t wanted = pieces[0].second + pieces[1].second + pieces[2].second;
      if (!parts || rows != wanted || (!matrix && is_quantized(tensor.view.dtype))) {
        return fail(ErrorCode::kCorrupt, "{}: tensor '{}' has {} rows where q, k and v need {}",
                    file->name(), tensor.name, rows, wanted);
      }
      const std::int64_t row_bytes = tensor.view.bytes() / rows;
      const std::byte* at = tensor.view.data;
      for (const auto& [letter, count] : pieces) {
        TensorView view{at, tensor.view.dtype, tensor.view.shape};
        view.shape[0] = count;
        set.add({fmt::format("model.layers.{}.self_attn.{}_proj{}", parts->layer, letter,
                             parts->suffix),
                 view},
                file);
        at += count * row_bytes;
      }
      continue;
    }
    std::string name = canonical_from_gguf_name(tensor.name);
    if (name.empty()) {
      return fail(ErrorCode::kUnsupported,
                  "{}: has the tensor '{}', which Weft does not know what to do with", file->name(),
                  tensor.name);
    }
    const bool q = ends_in(name, "self_attn.q_proj");
    const bool k = ends_in(name, "self_attn.k_proj");
    const bool interleaved = config.family == Family::kLlama || config.family == Family::kMistral;
    if (interleaved && (q || k)) {
      WEFT_ASSIGN(auto storage,
                  half_split_rows(tensor.view, q ? config.heads : config.kv_heads, tensor.name));
      TensorView view = tensor.view;
      view.data = storage->data();
      set.add({std::move(name), std::move(view)}, std::move(storage));
      continue;
    }
    set.add({std::move(name), tensor.view}, file);
  }
  if (auto ok = check_weights(config, set); !ok)
    return std::unexpected(ok.error().in(file->name()));
  return set;
}

}  // namespace weft::model
