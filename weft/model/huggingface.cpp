#include "weft/model/huggingface.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "weft/base/file.h"

namespace weft::model {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxJson = std::size_t{256} << 20;

struct Gpt2Name {
  std::string_view file;       // "h.N.<file>"
  std::string_view canonical;  // "model.layers.N.<canonical>"
  bool transposed;             // a Conv1D of transformers: [in, out]
};
constexpr std::array<Gpt2Name, 5> kGpt2Block = {{{"ln_1", "input_layernorm", false},
                                                 {"ln_2", "post_attention_layernorm", false},
                                                 {"attn.c_proj", "self_attn.o_proj", true},
                                                 {"mlp.c_fc", "mlp.up_proj", true},
                                                 {"mlp.c_proj", "mlp.down_proj", true}}};
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kGpt2Model = {
    {{"wte", "model.embed_tokens"}, {"wpe", "model.embed_positions"}, {"ln_f", "model.norm"}}};

// A copy of a matrix with rows and columns exchanged.
std::shared_ptr<std::vector<std::byte>> transposed(const TensorView& view) {
  const auto width = static_cast<std::size_t>(block_bytes(view.dtype));
  const auto rows = static_cast<std::size_t>(view.rows());
  const auto columns = static_cast<std::size_t>(view.columns());
  auto out = std::make_shared<std::vector<std::byte>>(rows * columns * width);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      std::memcpy(out->data() + (c * rows + r) * width, view.data + (r * columns + c) * width,
                  width);
    }
  }
  return out;
}

// Adds the rows of a fused q, k, v tensor as three views of one storage.
Status add_fused(WeightSet& set, const std::string& layer, std::string_view suffix,
                 TensorView fused, std::shared_ptr<const void> storage, const ModelConfig& config) {
  const std::int64_t piece = config.heads * config.head_dim;
  if (fused.shape[0] != 3 * piece) {
    return fail(ErrorCode::kCorrupt,
                "the tensor 'h.{}.attn.c_attn{}' has {} outputs; the configuration needs {}", layer,
                suffix, fused.shape[0], 3 * piece);
  }
  const std::int64_t bytes = fused.bytes() / 3;
  fused.shape[0] = piece;
  for (const char letter : {'q', 'k', 'v'}) {
    set.add({fmt::format("model.layers.{}.self_attn.{}_proj{}", layer, letter, suffix), fused},
            storage);
    fused.data += bytes;
  }
  return {};
}

Status add_gpt2(WeightSet& set, const NamedTensor& tensor,
                const std::shared_ptr<const SafetensorsFile>& file, const ModelConfig& config) {
  std::string_view name = tensor.name;
  if (name.starts_with("transformer.")) name.remove_prefix(12);
  const std::string_view suffix = name.ends_with(".weight") ? ".weight"
                                  : name.ends_with(".bias") ? ".bias"
                                                            : "";
  if (name == "lm_head.weight") {
    set.add(tensor, file);
    return {};
  }
  const std::string_view stem = name.substr(0, name.size() - suffix.size());
  for (const auto& [from, to] : kGpt2Model) {
    if (stem != from || suffix.empty()) continue;
    set.add({fmt::format("{}{}", to, suffix), tensor.view}, file);
    return {};
  }
  if (stem.starts_with("h.")) {
    const std::size_t dot = stem.find('.', 2);
    const std::string layer(stem.substr(2, dot == std::string_view::npos ? 0 : dot - 2));
    const std::string_view middle = dot == std::string_view::npos ? "" : stem.substr(dot + 1);
    // The causal mask and its fill value, which old files carry.
    if (middle == "attn" || name.ends_with(".attn.masked_bias")) return {};
    const bool fused = middle == "attn.c_attn";
    const auto known = std::ranges::find(kGpt2Block, middle, &Gpt2Name::file);
    if (!suffix.empty() && (fused || known != kGpt2Block.end())) {
      TensorView view = tensor.view;
      std::shared_ptr<const void> storage = file;
      if (view.shape.empty())
        return fail(ErrorCode::kCorrupt, "the tensor '{}' is a scalar", tensor.name);
      if (view.shape.size() == 2 && (fused || known->transposed)) {
        auto copy = transposed(view);
        view.data = copy->data();
        std::swap(view.shape[0], view.shape[1]);
        storage = std::move(copy);
      }
      if (fused) return add_fused(set, layer, suffix, view, std::move(storage), config);
      set.add({fmt::format("model.layers.{}.{}{}", layer, known->canonical, suffix), view},
              std::move(storage));
      return {};
    }
  }
  return fail(ErrorCode::kUnsupported, "the tensor '{}' has no place in a gpt2 model", tensor.name);
}

// Element type conversion of a whole tensor into `out`.
Status convert_into(const TensorView& view, DType type, std::span<std::byte> out) {
  if (view.dtype == type) {
    if (!out.empty()) std::memcpy(out.data(), view.data, out.size());
    return {};
  }
  std::vector<float> row(static_cast<std::size_t>(view.columns()));
  const std::size_t row_bytes = row.size() * static_cast<std::size_t>(block_bytes(type));
  for (std::int64_t r = 0; r < view.rows(); ++r) {
    WEFT_TRY(dequantize_rows(view, r, r + 1, row.data()));
    WEFT_TRY(quantize_rows(type, row.data(), 1, view.columns(),
                           out.data() + static_cast<std::size_t>(r) * row_bytes));
  }
  return {};
}

TensorSource converted(std::string name, const TensorView& view, DType type) {
  return {std::move(name), type, view.shape,
          [view, type](std::span<std::byte> out) { return convert_into(view, type, out); }};
}

// The transposed concatenation of matrices [out_i, in], or of biases.
TensorSource fused_transposed(std::string name, std::vector<TensorView> parts, DType type) {
  std::int64_t outputs = 0;
  for (const TensorView& part : parts) outputs += part.shape[0];
  const bool matrix = parts.front().shape.size() == 2;
  const std::int64_t inputs = matrix ? parts.front().shape[1] : 1;
  std::vector<std::int64_t> shape = matrix ? std::vector{inputs, outputs} : std::vector{outputs};
  return {std::move(name), type, std::move(shape),
          [parts = std::move(parts), type, outputs, inputs](std::span<std::byte> out) -> Status {
            const auto width = static_cast<std::size_t>(block_bytes(type));
            std::size_t column = 0;
            for (const TensorView& part : parts) {
              std::vector<std::byte> plain(static_cast<std::size_t>(part.elements()) * width);
              WEFT_TRY(convert_into(part, type, plain));
              for (std::int64_t r = 0; r < part.shape[0]; ++r, ++column) {
                for (std::size_t c = 0; c < static_cast<std::size_t>(inputs); ++c) {
                  std::memcpy(out.data() + (c * static_cast<std::size_t>(outputs) + column) * width,
                              plain.data() + (static_cast<std::size_t>(r * inputs) + c) * width,
                              width);
                }
              }
            }
            return {};
          }};
}

Result<std::vector<TensorSource>> gpt2_tensors(const ModelConfig& config, const WeightSet& weights,
                                               DType type) {
  std::vector<TensorSource> sources;
  for (const std::string_view suffix : {".weight", ".bias"}) {
    for (const auto& [file, canonical] : kGpt2Model) {
      if (const TensorView* view = weights.find(fmt::format("{}{}", canonical, suffix))) {
        sources.push_back(converted(fmt::format("transformer.{}{}", file, suffix), *view, type));
      }
    }
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      for (const Gpt2Name& name : kGpt2Block) {
        WEFT_ASSIGN(const TensorView view, weights.get(fmt::format("model.layers.{}.{}{}", layer,
                                                                   name.canonical, suffix)));
        std::string target = fmt::format("transformer.h.{}.{}{}", layer, name.file, suffix);
        sources.push_back(name.transposed ? fused_transposed(std::move(target), {view}, type)
                                          : converted(std::move(target), view, type));
      }
      std::vector<TensorView> parts;
      for (const char letter : {'q', 'k', 'v'}) {
        WEFT_ASSIGN(
            const TensorView view,
            weights.get(fmt::format("model.layers.{}.self_attn.{}_proj{}", layer, letter, suffix)));
        parts.push_back(view);
      }
      sources.push_back(fused_transposed(
          fmt::format("transformer.h.{}.attn.c_attn{}", layer, suffix), std::move(parts), type));
    }
  }
  if (!config.tie_embeddings) {
    WEFT_ASSIGN(const TensorView head, weights.get("lm_head.weight"));
    sources.push_back(converted("lm_head.weight", head, type));
  }
  return sources;
}

std::string_view torch_name(DType type) {
  switch (type) {
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    default:
      return "float32";
  }
}

Result<Json> read_json_file(const fs::path& path) {
  WEFT_ASSIGN(const std::string text, read_file(path, kMaxJson));
  return parse_json(text, path.string());
}

Json tokenizer_config(const ModelConfig& config, const Tokenizer& tokenizer,
                      const std::string& chat_template) {
  const auto text = [&](std::int64_t id) -> Json {
    if (id < 0) return nullptr;
    return tokenizer.token_bytes(static_cast<TokenId>(id));
  };
  const std::int64_t eos = !tokenizer.eos().empty()     ? tokenizer.eos().front()
                           : !config.eos_tokens.empty() ? config.eos_tokens.front()
                                                        : -1;
  Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"model_max_length", config.max_position},
               {"clean_up_tokenization_spaces", false},
               {"bos_token", text(tokenizer.bos())},
               {"eos_token", text(eos)}};
  if (!chat_template.empty()) json["chat_template"] = chat_template;
  return json;
}

}  // namespace

Result<ModelConfig> read_huggingface_config(const fs::path& folder) {
  std::error_code error;
  const fs::path path = folder / "config.json";
  if (!fs::exists(path, error)) {
    return fail(ErrorCode::kNotFound, "{}: has no config.json; is it a model folder?",
                folder.string());
  }
  WEFT_ASSIGN(const Json json, read_json_file(path));
  WEFT_ASSIGN(ModelConfig config, config_from_json(json, path.string()));
  const fs::path generation = folder / "generation_config.json";
  if (fs::exists(generation, error)) {
    WEFT_ASSIGN(const Json extra, read_json_file(generation));
    // What ends a reply is decided there where the two differ (Llama 3 Instruct).
    const auto eos = extra.is_object() ? extra.find("eos_token_id") : extra.end();
    if (extra.is_object() && eos != extra.end() && !eos->is_null()) {
      std::vector<std::int64_t> tokens;
      for (const Json& id : eos->is_array() ? *eos : Json::array({*eos})) {
        if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
            id.get<std::int64_t>() >= config.vocab_size) {
          return fail(ErrorCode::kCorrupt, "{}: eos_token_id holds {}, which is no token",
                      generation.string(), dump_json(id));
        }
        tokens.push_back(id.get<std::int64_t>());
      }
      config.eos_tokens = std::move(tokens);
    }
  }
  return config;
}

Result<WeightSet> weights_from_safetensors(
    std::span<const std::shared_ptr<const SafetensorsFile>> files, const ModelConfig& config) {
  WeightSet set;
  for (const auto& file : files) {
    for (const NamedTensor& tensor : file->tensors()) {
      if (tensor.name == "lm_head.weight" && config.tie_embeddings) continue;
      if (tensor.name.ends_with("rotary_emb.inv_freq")) continue;
      if (config.family == Family::kGpt2) {
        if (auto ok = add_gpt2(set, tensor, file, config); !ok)
          return std::unexpected(ok.error().in(file->name()));
      } else {
        set.add(tensor, file);
      }
    }
  }
  if (auto ok = check_weights(config, set); !ok) {
    return std::unexpected(ok.error().in(files.empty() ? "no files" : files.front()->name()));
  }
  return set;
}

Result<std::vector<TensorSource>> huggingface_tensors(const ModelConfig& config,
                                                      const WeightSet& weights, DType type) {
  if (config.family == Family::kGpt2) return gpt2_tensors(config, weights, type);
  std::vector<TensorSource> sources;
  for (const TensorSpec& spec : tensor_specs(config)) {
    WEFT_ASSIGN(const TensorView view, weights.get(spec.name));
    sources.push_back(converted(spec.name, view, type));
  }
  return sources;
}

Status write_huggingface_files(const fs::path& folder, const ModelConfig& config, DType type,
                               const Tokenizer* tokenizer, const std::string& chat_template) {
  Json json = config_to_json(config);
  const auto back = config_from_json(json, "config.json");
  if (!back || !(*back == config)) {
    return fail(ErrorCode::kUnsupported,
                "config.json of model type {} cannot express this model{}{} (frequency factors "
                "from a GGUF file, or biases "
                "on q, k and v alone)",
                to_string(config.family), back ? "" : ": ", back ? "" : back.error().message);
  }
  json["dtype"] = torch_name(type);
  WEFT_TRY(write_file_atomic(folder / "config.json", json.dump(2) + "\n"));
  const Json generation = {{"bos_token_id", json["bos_token_id"]},
                           {"eos_token_id", json["eos_token_id"]}};
  WEFT_TRY(write_file_atomic(folder / "generation_config.json", generation.dump(2) + "\n"));
  if (tokenizer == nullptr) return {};
  WEFT_ASSIGN(const Json tokenizer_json, tokenizer->to_tokenizer_json());
  WEFT_TRY(write_file_atomic(folder / "tokenizer.json", dump_json(tokenizer_json)));
  return write_file_atomic(folder / "tokenizer_config.json",
                           tokenizer_config(config, *tokenizer, chat_template)
                                   .dump(2, ' ', false, Json::error_handler_t::replace) +
                               "\n");
}

}  // namespace weft::model
