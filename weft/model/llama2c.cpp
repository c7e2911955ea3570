#include "weft/model/llama2c.h"

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "weft/model/output_file.h"
#include "weft/model/row_order.h"

namespace weft::model {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kLaterMagic = 0x616b3432;  // "ak42", versions 1 and 2

// The header of version 0 (export.py, legacy_export): seven int32.
struct Header {
  std::int32_t dim, hidden, layers, heads, kv_heads, vocab, positions;
};
static_assert(sizeof(Header) == 28);

// One array of the file: a matrix (or a norm) for each layer, or one alone.
struct Section {
  std::string_view name;  // "model.layers.{}.<name>" or the whole name
  bool per_layer;
  std::vector<std::int64_t> shape;
};

std::vector<Section> sections(const ModelConfig& c) {
  const std::int64_t kv = c.kv_heads * c.head_dim;
  std::vector<Section> list = {{"model.embed_tokens.weight", false, {c.vocab_size, c.hidden}},
                               {"input_layernorm.weight", true, {c.hidden}},
                               {"self_attn.q_proj.weight", true, {c.hidden, c.hidden}},
                               {"self_attn.k_proj.weight", true, {kv, c.hidden}},
                               {"self_attn.v_proj.weight", true, {kv, c.hidden}},
                               {"self_attn.o_proj.weight", true, {c.hidden, c.hidden}},
                               {"post_attention_layernorm.weight", true, {c.hidden}},
                               {"mlp.gate_proj.weight", true, {c.intermediate, c.hidden}},
                               {"mlp.down_proj.weight", true, {c.hidden, c.intermediate}},
                               {"mlp.up_proj.weight", true, {c.intermediate, c.hidden}},
                               {"model.norm.weight", false, {c.hidden}},
                               {"freq_cis_real", false, {c.max_position, c.head_dim / 2}},
                               {"freq_cis_imag", false, {c.max_position, c.head_dim / 2}}};
  if (!c.tie_embeddings) list.push_back({"lm_head.weight", false, {c.vocab_size, c.hidden}});
  return list;
}

std::string tensor_name(const Section& section, std::int64_t layer) {
  return section.per_layer ? fmt::format("model.layers.{}.{}", layer, section.name)
                           : std::string(section.name);
}

Result<ModelConfig> read_header(std::span<const std::byte> bytes, const std::string& name) {
  Header header;
  if (bytes.size() < sizeof header) {
    return fail(ErrorCode::kCorrupt, "{}: has {} bytes, fewer than a llama2.c header", name,
                bytes.size());
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (static_cast<std::uint32_t>(header.dim) == kLaterMagic) {
    return fail(ErrorCode::kUnsupported,
                "{}: is a llama2.c file of version {}; Weft reads version 0 (legacy export)", name,
                header.hidden);
  }
  ModelConfig config;
  config.hidden = header.dim;
  config.intermediate = header.hidden;
  config.layers = header.layers;
  config.heads = header.heads;
  config.kv_heads = header.kv_heads;
  // The sign says whether the classifier is the embedding (positive) or follows.
  config.tie_embeddings = header.vocab > 0;
  config.vocab_size = std::abs(static_cast<std::int64_t>(header.vocab));
  config.max_position = header.positions;
  config.norm_eps = 1e-5;
  if (header.heads <= 0 || header.dim <= 0 || header.dim % header.heads != 0 ||
      header.dim / header.heads % 2 != 0) {
    return fail(ErrorCode::kCorrupt,
                "{}: {} heads do not fit a width of {}; is it a llama2.c checkpoint?", name,
                header.heads, header.dim);
  }
  config.head_dim = header.dim / header.heads;
  config.bos_token = config.vocab_size > 1 ? 1 : -1;  // run.c
  if (config.vocab_size > 2) config.eos_tokens = {2};
  if (auto valid = validate(config); !valid) {
    return fail(ErrorCode::kCorrupt, "{}: its header is not that of a llama2.c checkpoint: {}",
                name, valid.error().message);
  }
  return config;
}

Status check_exportable(const ModelConfig& c) {
  const auto refuse = [](std::string_view what) {
    return fail(ErrorCode::kUnsupported,
                "a llama2.c file cannot hold {}; convert to GGUF or a safetensors folder", what);
  };
  if (c.family != Family::kLlama && c.family != Family::kMistral)
    return refuse(to_string(c.family));
  if (c.qkv_bias || c.attention_out_bias || c.mlp_bias) return refuse("biases");
  if (c.qk_norm) return refuse("QK-norm");
  if (c.sliding_window != 0) return refuse("sliding windows");
  if (c.rope.scaling != RopeScaling::kNone || !c.rope.frequency_factors.empty() ||
      c.rope.rotary_dim != 0) {
    return refuse("rotary scaling");
  }
  if (c.rope.theta != 10000.0)
    return refuse(fmt::format("the rotary base {} (run.c has 10,000)", c.rope.theta));
  if (c.norm_eps != 1e-5)
    return refuse(fmt::format("the norm epsilon {} (run.c has 1e-5)", c.norm_eps));
  if (c.activation != Activation::kSilu || !c.gated_mlp) return refuse("this activation");
  if (c.head_dim * c.heads != c.hidden) return refuse("heads that do not fill the width");
  return {};
}

// cos or sin of position * 10000^(-2 i / head_dim), as llama2.c's exporter writes them.
void fill_rotary(const ModelConfig& config, bool imaginary, std::span<std::byte> out) {
  const std::int64_t half = config.head_dim / 2;
  for (std::int64_t position = 0; position < config.max_position; ++position) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double exponent = static_cast<double>(2 * i) / static_cast<double>(config.head_dim);
      const auto frequency = static_cast<float>(1.0 / std::pow(10000.0, exponent));
      const auto angle = static_cast<double>(static_cast<float>(position) * frequency);
      const auto value = static_cast<float>(imaginary ? std::sin(angle) : std::cos(angle));
      std::memcpy(out.data() + (position * half + i) * 4, &value, 4);
    }
  }
}

}  // namespace

Result<Llama2cModel> parse_llama2c(std::span<const std::byte> bytes,
                                   std::shared_ptr<const void> storage, const std::string& name) {
  Llama2cModel model;
  WEFT_ASSIGN(model.config, read_header(bytes, name));
  const ModelConfig& config = model.config;
  const std::vector<Section> list = sections(config);
  std::int64_t wanted = sizeof(Header);
  for (const Section& section : list) {
    const TensorView shape{nullptr, DType::kF32, section.shape};
    wanted += shape.bytes() * (section.per_layer ? config.layers : 1);
  }
  if (wanted != static_cast<std::int64_t>(bytes.size())) {
    return fail(ErrorCode::kCorrupt,
                "{}: has {} bytes where its header (width {}, {} layers, vocabulary {}) needs {}",
                name, bytes.size(), config.hidden, config.layers, config.vocab_size, wanted);
  }
  const std::byte* at = bytes.data() + sizeof(Header);
  for (const Section& section : list) {
    for (std::int64_t layer = 0; layer < (section.per_layer ? config.layers : 1); ++layer) {
      TensorView view{at, DType::kF32, section.shape};
      at += view.bytes();
      if (section.name.starts_with("freq_cis")) continue;  // computed, not read
      const bool q = section.name.starts_with("self_attn.q_proj");
      if (q || section.name.starts_with("self_attn.k_proj")) {
        WEFT_ASSIGN(auto rows,
                    half_split_rows(view, q ? config.heads : config.kv_heads, section.name));
        view.data = rows->data();
        model.weights.add({tensor_name(section, layer), view}, std::move(rows));
      } else {
        model.weights.add({tensor_name(section, layer), view}, storage);
      }
    }
  }
  if (auto ok = check_weights(config, model.weights); !ok)
    return std::unexpected(ok.error().in(name));
  return model;
}

Result<Llama2cModel> load_llama2c(const fs::path& path) {
  WEFT_ASSIGN(MappedFile map, MappedFile::open(path));
  const auto file = std::make_shared<const MappedFile>(std::move(map));
  return parse_llama2c(file->bytes(), file, path.string());
}

Status write_llama2c(const fs::path& path, const ModelConfig& config, const WeightSet& weights,
                     const WriteProgress& progress) {
  WEFT_TRY(check_exportable(config));
  WEFT_TRY(check_weights(config, weights));
  const auto vocab = static_cast<std::int32_t>(config.vocab_size);
  const Header header = {
      static_cast<std::int32_t>(config.hidden),      static_cast<std::int32_t>(config.intermediate),
      static_cast<std::int32_t>(config.layers),      static_cast<std::int32_t>(config.heads),
      static_cast<std::int32_t>(config.kv_heads),    config.tie_embeddings ? vocab : -vocab,
      static_cast<std::int32_t>(config.max_position)};
  std::vector<TensorSource> sources;
  for (const Section& section : sections(config)) {
    for (std::int64_t layer = 0; layer < (section.per_layer ? config.layers : 1); ++layer) {
      TensorSource source{tensor_name(section, layer), DType::kF32, section.shape, {}};
      if (section.name.starts_with("freq_cis")) {
        source.fill = [&config, imaginary = section.name.ends_with("imag")](
                          std::span<std::byte> out) -> Status {
          fill_rotary(config, imaginary, out);
          return {};
        };
      } else {
        WEFT_ASSIGN(const TensorView view, weights.get(source.name));
        const bool q = section.name.starts_with("self_attn.q_proj");
        const std::int64_t heads = q                                              ? config.heads
                                   : section.name.starts_with("self_attn.k_proj") ? config.kv_heads
                                                                                  : 0;
        source.fill = [view, heads](std::span<std::byte> out) -> Status {
          std::vector<float> values(static_cast<std::size_t>(view.elements()));
          WEFT_TRY(dequantize(view, values.data()));
          TensorView plain{reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                           view.shape};
          if (heads == 0) {
            std::memcpy(out.data(), plain.data, out.size());
            return {};
          }
          WEFT_ASSIGN(const auto rows, interleave_rows(plain, heads, "q or k"));
          std::memcpy(out.data(), rows->data(), out.size());
          return {};
        };
      }
      sources.push_back(std::move(source));
    }
  }
  WEFT_ASSIGN(OutputFile out, OutputFile::create(path));
  WEFT_TRY(out.write(std::as_bytes(std::span(&header, 1))));
  WEFT_TRY(out.write_tensors(sources, 1, progress));
  return out.commit();
}

Result<fs::path> find_llama2c_tokenizer(const fs::path& checkpoint, std::int64_t vocab_size) {
  const std::string own = fmt::format("tok{}.bin", vocab_size);
  std::error_code error;
  for (const std::string& name : {own, std::string("tokenizer.bin")}) {
    const fs::path path = checkpoint.parent_path() / name;
    if (fs::exists(path, error)) return path;
  }
  return fail(ErrorCode::kNotFound,
              "{}: has no tokenizer beside it; put {} or tokenizer.bin into its folder",
              checkpoint.string(), own);
}

}  // namespace weft::model
