// Hugging Face config.json, both ways (transformers' configuration classes of the
// same model_type; absent fields take the defaults of those classes).
#include <algorithm>
#include <array>
#include <cmath>

#include "weft/model/config.h"

namespace weft::model {
namespace {

template <class T>
Result<T> need(const Json& json, std::string_view key) {
  return json_field<T>(json, key);
}

bool present(const Json& json, std::string_view key) {
  const auto it = json.find(key);
  return it != json.end() && !it->is_null();
}

Result<std::string> model_type(const Json& json) {
  if (present(json, "model_type")) return need<std::string>(json, "model_type");
  if (present(json, "architectures") && json["architectures"].is_array() &&
      !json["architectures"].empty() && json["architectures"][0].is_string()) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 5> known = {
        {{"LlamaForCausalLM", "llama"},
         {"MistralForCausalLM", "mistral"},
         {"Qwen2ForCausalLM", "qwen2"},
         {"Qwen3ForCausalLM", "qwen3"},
         {"GPT2LMHeadModel", "gpt2"}}};
    const std::string name = json["architectures"][0];
    for (const auto& [architecture, type] : known) {
      if (name == architecture) return std::string(type);
    }
    return name;
  }
  return fail(ErrorCode::kCorrupt, "has neither model_type nor architectures");
}

Result<Activation> activation(const std::string& field, const std::string& name) {
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name == "gelu") return Activation::kGelu;
  return fail(ErrorCode::kUnsupported,
              "{} is '{}'; Weft has silu, gelu, gelu_new and gelu_pytorch_tanh", field, name);
}

// Refuses what would silently change the meaning of the weights.
Status refuse_unsupported(const Json& json, const std::string& type) {
  for (const std::string_view key :
       {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}) {
    if (!present(json, key)) continue;
    WEFT_ASSIGN(const auto experts, need<std::int64_t>(json, key));
    if (experts > 0) {
      return fail(ErrorCode::kUnsupported,
                  "is a mixture of {} experts ({}, {}), which Weft does not run", experts, type,
                  key);
    }
  }
  if (present(json, "quantization_config")) {
    const Json& quantization = json["quantization_config"];
    std::string method = "unknown";
    if (quantization.is_object()) {
      WEFT_ASSIGN(method, json_field_or<std::string>(quantization, "quant_method", "unknown"));
    }
    return fail(ErrorCode::kUnsupported,
                "has weights quantised by '{}' (quantization_config); use the unquantised model",
                method);
  }
  return {};
}

Status read_tokens(const Json& json, ModelConfig& config) {
  WEFT_ASSIGN(config.bos_token, json_field_or<std::int64_t>(json, "bos_token_id", -1));
  if (!present(json, "eos_token_id")) return {};
  const Json& eos = json["eos_token_id"];
  if (eos.is_array()) {
    for (const Json& id : eos) {
      if (!id.is_number_integer())
        return fail(ErrorCode::kCorrupt, "eos_token_id holds something other than integers");
      config.eos_tokens.push_back(id.get<std::int64_t>());
    }
    return {};
  }
  WEFT_ASSIGN(const auto id, need<std::int64_t>(json, "eos_token_id"));
  config.eos_tokens.push_back(id);
  return {};
}

// YaRN's factor on cos and sin (transformers, _compute_yarn_parameters).
double yarn_mscale(double scale, double mscale) {
  return scale <= 1.0 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

Status read_yarn(const Json& scaling, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  WEFT_ASSIGN(rope.beta_fast, json_field_or<double>(scaling, "beta_fast", 32.0));
  WEFT_ASSIGN(rope.beta_slow, json_field_or<double>(scaling, "beta_slow", 1.0));
  WEFT_ASSIGN(rope.attention_factor, json_field_or<double>(scaling, "attention_factor", 0.0));
  WEFT_ASSIGN(const double mscale, json_field_or<double>(scaling, "mscale", 0.0));
  WEFT_ASSIGN(const double all_dim, json_field_or<double>(scaling, "mscale_all_dim", 0.0));
  if (rope.attention_factor == 0.0 && mscale != 0.0 && all_dim != 0.0) {
    rope.attention_factor = yarn_mscale(rope.factor, mscale) / yarn_mscale(rope.factor, all_dim);
  }
  WEFT_ASSIGN(const bool truncate, json_field_or<bool>(scaling, "truncate", true));
  if (!truncate)
    return fail(ErrorCode::kUnsupported, "rope_scaling.truncate is false, which Weft does not do");
  return {};
}

Status read_rope(const Json& json, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  // transformers 5 writes rope_parameters; before, rope_theta and rope_scaling.
  const bool combined = present(json, "rope_parameters");
  const bool separate = present(json, "rope_scaling");
  const Json empty = Json::object();
  const Json& scaling = combined   ? json["rope_parameters"]
                        : separate ? json["rope_scaling"]
                                   : empty;
  if (!scaling.is_object()) {
    return fail(ErrorCode::kCorrupt, "{} is not an object",
                combined ? "rope_parameters" : "rope_scaling");
  }
  WEFT_ASSIGN(rope.theta, json_field_or<double>(json, "rope_theta", 10000.0));
  WEFT_ASSIGN(rope.theta, json_field_or<double>(scaling, "rope_theta", rope.theta));
  WEFT_ASSIGN(const double top_partial, json_field_or<double>(json, "partial_rotary_factor", 1.0));
  WEFT_ASSIGN(const double partial,
              json_field_or<double>(scaling, "partial_rotary_factor", top_partial));
  if (partial != 1.0) {
    if (!(partial > 0.0 && partial < 1.0)) {
      return fail(ErrorCode::kOutOfRange,
                  "partial_rotary_factor is {}; it must be above 0 and at most 1", partial);
    }
    rope.rotary_dim = static_cast<std::int64_t>(static_cast<double>(config.head_dim) * partial);
  }
  WEFT_ASSIGN(const std::string old_type, json_field_or<std::string>(scaling, "type", "default"));
  WEFT_ASSIGN(const std::string type, json_field_or<std::string>(scaling, "rope_type", old_type));
  if (type == "default") return {};
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "dynamic") {
    rope.scaling = RopeScaling::kDynamic;
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
  } else {
    return fail(ErrorCode::kUnsupported,
                "rope_scaling is of type '{}'; Weft has linear, dynamic, llama3 and yarn", type);
  }
  WEFT_ASSIGN(rope.factor, need<double>(scaling, "factor"));
  WEFT_ASSIGN(
      const auto top_original,
      json_field_or<std::int64_t>(json, "original_max_position_embeddings", config.max_position));
  WEFT_ASSIGN(const auto original, json_field_or<std::int64_t>(
                                       scaling, "original_max_position_embeddings", top_original));
  if (rope.scaling != RopeScaling::kLinear) rope.original_max_position = original;
  if (rope.scaling == RopeScaling::kLlama3) {
    WEFT_ASSIGN(rope.low_freq_factor, need<double>(scaling, "low_freq_factor"));
    WEFT_ASSIGN(rope.high_freq_factor, need<double>(scaling, "high_freq_factor"));
  }
  return rope.scaling == RopeScaling::kYarn ? read_yarn(scaling, config) : Status{};
}

Status read_sliding(const Json& json, ModelConfig& config) {
  const bool qwen = config.family == Family::kQwen2 || config.family == Family::kQwen3;
  if (config.family == Family::kLlama) return {};
  // MistralConfig slides over 4096 positions where the field is absent.
  std::int64_t window = 0;
  if (present(json, "sliding_window")) {
    WEFT_ASSIGN(window, need<std::int64_t>(json, "sliding_window"));
  } else if (config.family == Family::kMistral && !json.contains("sliding_window")) {
    window = 4096;
  }
  if (qwen) {
    WEFT_ASSIGN(const bool use, json_field_or<bool>(json, "use_sliding_window", false));
    if (!use) window = 0;
  }
  if (window == 0) return {};
  config.sliding_window = window;
  std::vector<bool> layers(static_cast<std::size_t>(config.layers), true);
  if (present(json, "layer_types")) {
    const Json& types = json["layer_types"];
    if (!types.is_array() || types.size() != layers.size()) {
      return fail(ErrorCode::kCorrupt, "layer_types is not a list of {} entries", layers.size());
    }
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (types[i] != "sliding_attention" && types[i] != "full_attention") {
        return fail(ErrorCode::kUnsupported,
                    "layer_types holds {}; Weft has full_attention and sliding_attention",
                    types[i].dump());
      }
      layers[i] = types[i] == "sliding_attention";
    }
  } else if (qwen) {
    WEFT_ASSIGN(const auto full, json_field_or<std::int64_t>(json, "max_window_layers", 28));
    for (std::size_t i = 0; i < layers.size(); ++i)
      layers[i] = static_cast<std::int64_t>(i) >= full;
  }
  if (std::ranges::none_of(layers, [](bool b) { return b; })) {
    config.sliding_window = 0;
  } else if (!std::ranges::all_of(layers, [](bool b) { return b; })) {
    config.sliding_layers = std::move(layers);
  }
  return {};
}

Result<ModelConfig> read_gpt2(const Json& json) {
  ModelConfig config;
  config.family = Family::kGpt2;
  config.norm = NormKind::kLayer;
  config.gated_mlp = false;
  config.learned_positions = true;
  config.qkv_bias = config.attention_out_bias = config.mlp_bias = true;
  WEFT_ASSIGN(config.vocab_size, json_field_or<std::int64_t>(json, "vocab_size", 50257));
  WEFT_ASSIGN(config.hidden, need<std::int64_t>(json, "n_embd"));
  WEFT_ASSIGN(config.layers, need<std::int64_t>(json, "n_layer"));
  WEFT_ASSIGN(config.heads, need<std::int64_t>(json, "n_head"));
  if (config.heads <= 0 || config.hidden <= 0 || config.hidden > (std::int64_t{1} << 20) ||
      config.hidden % config.heads != 0) {
    return fail(ErrorCode::kOutOfRange, "n_embd is {}, not a multiple of n_head {}", config.hidden,
                config.heads);
  }
  config.kv_heads = config.heads;
  config.head_dim = config.hidden / config.heads;
  WEFT_ASSIGN(config.max_position, json_field_or<std::int64_t>(json, "n_positions", 1024));
  WEFT_ASSIGN(config.intermediate, json_field_or<std::int64_t>(json, "n_inner", 4 * config.hidden));
  WEFT_ASSIGN(config.norm_eps, json_field_or<double>(json, "layer_norm_epsilon", 1e-5));
  WEFT_ASSIGN(const auto act, json_field_or<std::string>(json, "activation_function", "gelu_new"));
  WEFT_ASSIGN(config.activation, activation("activation_function", act));
  WEFT_ASSIGN(config.tie_embeddings, json_field_or<bool>(json, "tie_word_embeddings", true));
  WEFT_ASSIGN(const bool scaled, json_field_or<bool>(json, "scale_attn_weights", true));
  WEFT_ASSIGN(const bool by_layer,
              json_field_or<bool>(json, "scale_attn_by_inverse_layer_idx", false));
  WEFT_ASSIGN(const bool cross, json_field_or<bool>(json, "add_cross_attention", false));
  if (!scaled || by_layer || cross) {
    return fail(ErrorCode::kUnsupported,
                "scale_attn_weights=false, scale_attn_by_inverse_layer_idx and add_cross_attention "
                "are not supported");
  }
  WEFT_TRY(read_tokens(json, config));
  return config;
}

Result<ModelConfig> read_llama_like(const Json& json, Family family) {
  ModelConfig config;
  config.family = family;
  WEFT_ASSIGN(config.vocab_size, need<std::int64_t>(json, "vocab_size"));
  WEFT_ASSIGN(config.hidden, need<std::int64_t>(json, "hidden_size"));
  WEFT_ASSIGN(config.layers, need<std::int64_t>(json, "num_hidden_layers"));
  WEFT_ASSIGN(config.heads, need<std::int64_t>(json, "num_attention_heads"));
  WEFT_ASSIGN(config.kv_heads,
              json_field_or<std::int64_t>(json, "num_key_value_heads", config.heads));
  WEFT_ASSIGN(config.intermediate, need<std::int64_t>(json, "intermediate_size"));
  WEFT_ASSIGN(config.max_position, need<std::int64_t>(json, "max_position_embeddings"));
  if (config.heads <= 0 || config.layers < 0 || config.layers > 4096) {
    return fail(ErrorCode::kOutOfRange, "num_attention_heads is {} and num_hidden_layers {}",
                config.heads, config.layers);
  }
  const std::int64_t head_dim = family == Family::kQwen3 ? 128 : config.hidden / config.heads;
  WEFT_ASSIGN(config.head_dim, json_field_or<std::int64_t>(json, "head_dim", head_dim));
  WEFT_ASSIGN(config.norm_eps, json_field_or<double>(json, "rms_norm_eps", 1e-6));
  WEFT_ASSIGN(const auto act, json_field_or<std::string>(json, "hidden_act", "silu"));
  WEFT_ASSIGN(config.activation, activation("hidden_act", act));
  WEFT_ASSIGN(config.tie_embeddings, json_field_or<bool>(json, "tie_word_embeddings", false));
  if (family == Family::kQwen2) {
    config.qkv_bias = true;
  } else if (family != Family::kMistral) {
    WEFT_ASSIGN(config.qkv_bias, json_field_or<bool>(json, "attention_bias", false));
    config.attention_out_bias = config.qkv_bias;
  }
  if (family == Family::kLlama) {
    WEFT_ASSIGN(config.mlp_bias, json_field_or<bool>(json, "mlp_bias", false));
  }
  config.qk_norm = family == Family::kQwen3;
  WEFT_TRY(read_rope(json, config));
  WEFT_TRY(read_sliding(json, config));
  WEFT_TRY(read_tokens(json, config));
  return config;
}

Result<ModelConfig> read_config(const Json& json) {
  if (!json.is_object()) return fail(ErrorCode::kCorrupt, "is not a JSON object");
  WEFT_ASSIGN(const std::string type, model_type(json));
  constexpr std::array<std::pair<std::string_view, Family>, 4> families = {
      {{"llama", Family::kLlama},
       {"mistral", Family::kMistral},
       {"qwen2", Family::kQwen2},
       {"qwen3", Family::kQwen3}}};
  if (type == "gpt2") {
    WEFT_TRY(refuse_unsupported(json, type));
    return read_gpt2(json);
  }
  for (const auto& [name, family] : families) {
    if (type != name) continue;
    WEFT_TRY(refuse_unsupported(json, type));
    return read_llama_like(json, family);
  }
  return fail(ErrorCode::kUnsupported,
              "model_type '{}' is not one that Weft runs (llama, mistral, qwen2, qwen3, gpt2)",
              type);
}

Json rope_scaling_json(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  Json json = {{"rope_type", "default"}, {"factor", rope.factor}};
  switch (rope.scaling) {
    case RopeScaling::kNone:
      return nullptr;
    case RopeScaling::kLinear:
      json["rope_type"] = "linear";
      break;
    case RopeScaling::kDynamic:
      json["rope_type"] = "dynamic";
      break;
    case RopeScaling::kLlama3:
      json["rope_type"] = "llama3";
      json["low_freq_factor"] = rope.low_freq_factor;
      json["high_freq_factor"] = rope.high_freq_factor;
      break;
    case RopeScaling::kYarn:
      json["rope_type"] = "yarn";
      json["beta_fast"] = rope.beta_fast;
      json["beta_slow"] = rope.beta_slow;
      if (rope.attention_factor != 0.0) json["attention_factor"] = rope.attention_factor;
      break;
  }
  if (rope.scaling != RopeScaling::kLinear && rope.original_max_position > 0) {
    json["original_max_position_embeddings"] = rope.original_max_position;
  }
  return json;
}

void write_tokens(const ModelConfig& config, Json& json) {
  json["bos_token_id"] = config.bos_token >= 0 ? Json(config.bos_token) : Json(nullptr);
  if (config.eos_tokens.empty()) {
    json["eos_token_id"] = nullptr;
  } else if (config.eos_tokens.size() == 1) {
    json["eos_token_id"] = config.eos_tokens.front();
  } else {
    json["eos_token_id"] = config.eos_tokens;
  }
}

std::string_view activation_name(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "silu";
    case Activation::kGeluTanh:
      return "gelu_new";
    case Activation::kGelu:
      return "gelu";
  }
  return "silu";
}

Json gpt2_json(const ModelConfig& config) {
  Json json = {{"architectures", {"GPT2LMHeadModel"}},
               {"model_type", "gpt2"},
               {"vocab_size", config.vocab_size},
               {"n_embd", config.hidden},
               {"n_layer", config.layers},
               {"n_head", config.heads},
               {"n_inner", config.intermediate},
               {"n_positions", config.max_position},
               {"layer_norm_epsilon", config.norm_eps},
               {"activation_function", activation_name(config.activation)},
               {"tie_word_embeddings", config.tie_embeddings},
               // GPT2Config drops out by default, and a file without these would train so.
               {"attn_pdrop", 0.0},
               {"embd_pdrop", 0.0},
               {"resid_pdrop", 0.0}};
  write_tokens(config, json);
  return json;
}

}  // namespace

Result<ModelConfig> config_from_json(const Json& json, std::string_view file) {
  auto config = read_config(json);
  if (config) {
    if (auto valid = validate(*config); !valid) return std::unexpected(valid.error().in(file));
    return config;
  }
  // A wrong or missing field of somebody's file is a damaged file, not a bad call.
  Error error = config.error().in(file);
  if (error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kNotFound)
    error.code = ErrorCode::kCorrupt;
  return std::unexpected(std::move(error));
}

Json config_to_json(const ModelConfig& config) {
  if (config.family == Family::kGpt2) return gpt2_json(config);
  constexpr std::array<std::string_view, 4> architectures = {
      "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"};
  const bool qwen = config.family == Family::kQwen2 || config.family == Family::kQwen3;
  Json json = {{"architectures", {architectures[static_cast<std::size_t>(config.family)]}},
               {"model_type", to_string(config.family)},
               {"vocab_size", config.vocab_size},
               {"hidden_size", config.hidden},
               {"num_hidden_layers", config.layers},
               {"num_attention_heads", config.heads},
               {"num_key_value_heads", config.kv_heads},
               {"head_dim", config.head_dim},
               {"intermediate_size", config.intermediate},
               {"max_position_embeddings", config.max_position},
               {"rms_norm_eps", config.norm_eps},
               {"hidden_act", activation_name(config.activation)},
               {"tie_word_embeddings", config.tie_embeddings},
               {"attention_dropout", 0.0}};
  if (config.family == Family::kLlama || config.family == Family::kQwen3)
    json["attention_bias"] = config.qkv_bias;
  if (config.family == Family::kLlama) json["mlp_bias"] = config.mlp_bias;
  json["rope_theta"] = config.rope.theta;
  json["rope_scaling"] = rope_scaling_json(config);
  if (config.rope.rotary_dim != 0) {
    json["partial_rotary_factor"] =
        static_cast<double>(config.rope.rotary_dim) / static_cast<double>(config.head_dim);
  }
  if (config.family != Family::kLlama) {
    json["sliding_window"] =
        config.sliding_window > 0 ? Json(config.sliding_window) : Json(nullptr);
  }
  if (qwen) json["use_sliding_window"] = config.sliding_window > 0;
  if (qwen && config.sliding_window > 0) {
    Json types = Json::array();
    std::int64_t first_sliding = config.layers;
    for (std::int64_t i = 0; i < config.layers; ++i) {
      const bool sliding =
          config.sliding_layers.empty() || config.sliding_layers[static_cast<std::size_t>(i)];
      if (sliding) first_sliding = std::min(first_sliding, i);
      types.push_back(sliding ? "sliding_attention" : "full_attention");
    }
    json["max_window_layers"] = first_sliding;
    json["layer_types"] = std::move(types);
  }
  write_tokens(config, json);
  return json;
}

}  // namespace weft::model
