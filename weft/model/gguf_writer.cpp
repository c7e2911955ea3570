#include "weft/model/gguf_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "weft/model/output_file.h"

namespace weft::model {
namespace {

constexpr std::int64_t kAlignment = 32;

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_string(std::string& out, std::string_view text) {
  put(out, static_cast<std::uint64_t>(text.size()));
  out.append(text);
}

template <class T>
std::string scalar(GgufType type, T value) {
  std::string out;
  put(out, static_cast<std::uint32_t>(type));
  put(out, value);
  return out;
}

std::string array_header(GgufType element, std::size_t count) {
  std::string out;
  put(out, static_cast<std::uint32_t>(GgufType::kArray));
  put(out, static_cast<std::uint32_t>(element));
  put(out, static_cast<std::uint64_t>(count));
  return out;
}

template <class T>
std::string array(GgufType element, std::span<const T> values) {
  std::string out = array_header(element, values.size());
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return out;
}

Status set_rope_metadata(GgufMetadata& metadata, const std::string& arch,
                         const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  metadata.set_f32(arch + ".rope.freq_base", static_cast<float>(rope.theta));
  metadata.set_u32(
      arch + ".rope.dimension_count",
      static_cast<std::uint32_t>(rope.rotary_dim == 0 ? config.head_dim : rope.rotary_dim));
  switch (rope.scaling) {
    case RopeScaling::kNone:
    case RopeScaling::kLlama3:  // as rope_freqs.weight
      return {};
    case RopeScaling::kDynamic:
      return fail(ErrorCode::kUnsupported, "GGUF has no dynamic rotary scaling");
    case RopeScaling::kLinear:
      metadata.set_text(arch + ".rope.scaling.type", "linear");
      break;
    case RopeScaling::kYarn:
      metadata.set_text(arch + ".rope.scaling.type", "yarn");
      metadata.set_u32(arch + ".rope.scaling.original_context_length",
                       static_cast<std::uint32_t>(rope.original_max_position));
      if (rope.attention_factor != 0.0) {
        metadata.set_f32(arch + ".rope.scaling.attn_factor",
                         static_cast<float>(rope.attention_factor));
      }
      metadata.set_f32(arch + ".rope.scaling.yarn_beta_fast", static_cast<float>(rope.beta_fast));
      metadata.set_f32(arch + ".rope.scaling.yarn_beta_slow", static_cast<float>(rope.beta_slow));
      break;
  }
  metadata.set_f32(arch + ".rope.scaling.factor", static_cast<float>(rope.factor));
  return {};
}

}  // namespace

void GgufMetadata::set(std::string_view key, std::string encoded) {
  const auto it = std::ranges::find(pairs_, key, &Pair::key);
  if (it != pairs_.end()) {
    it->encoded = std::move(encoded);
  } else {
    pairs_.push_back({std::string(key), std::move(encoded)});
  }
}

bool GgufMetadata::has(std::string_view key) const {
  return std::ranges::find(pairs_, key, &Pair::key) != pairs_.end();
}

void GgufMetadata::set_text(std::string_view key, std::string_view value) {
  std::string out;
  put(out, static_cast<std::uint32_t>(GgufType::kString));
  put_string(out, value);
  set(key, std::move(out));
}
void GgufMetadata::set_u32(std::string_view key, std::uint32_t value) {
  set(key, scalar(GgufType::kU32, value));
}
void GgufMetadata::set_f32(std::string_view key, float value) {
  set(key, scalar(GgufType::kF32, value));
}
void GgufMetadata::set_bool(std::string_view key, bool value) {
  set(key, scalar(GgufType::kBool, static_cast<std::uint8_t>(value ? 1 : 0)));
}
void GgufMetadata::set_texts(std::string_view key, std::span<const std::string> values) {
  std::string out = array_header(GgufType::kString, values.size());
  for (const std::string& value : values) put_string(out, value);
  set(key, std::move(out));
}
void GgufMetadata::set_i32s(std::string_view key, std::span<const std::int32_t> values) {
  set(key, array(GgufType::kI32, values));
}
void GgufMetadata::set_f32s(std::string_view key, std::span<const float> values) {
  set(key, array(GgufType::kF32, values));
}

void GgufMetadata::copy(std::string_view key, const GgufValue& value) {
  std::string out;
  const bool array = value.type == GgufType::kArray;
  if (array) {
    out = array_header(value.element, static_cast<std::size_t>(value.count));
  } else {
    put(out, static_cast<std::uint32_t>(value.type));
  }
  for (const std::string_view text : value.strings) put_string(out, text);
  out.append(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
  set(key, std::move(out));
}

Status write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
                  std::vector<TensorSource> tensors, const WriteProgress& progress) {
  std::string head = "GGUF";
  put(head, std::uint32_t{3});
  put(head, static_cast<std::uint64_t>(tensors.size()));
  put(head, static_cast<std::uint64_t>(metadata.pairs().size()));
  for (const auto& [key, encoded] : metadata.pairs()) {
    put_string(head, key);
    head += encoded;
  }
  std::uint64_t offset = 0;
  for (const TensorSource& tensor : tensors) {
    const auto type = ggml_type(tensor.dtype);
    if (!type || tensor.name.size() > 63 || tensor.shape.size() > 4) {
      return fail(ErrorCode::kUnsupported,
                  "{}: a GGUF file cannot hold the tensor '{}' ({}, {} dimensions)", path.string(),
                  tensor.name, to_string(tensor.dtype), tensor.shape.size());
    }
    put_string(head, tensor.name);
    put(head, static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto it = tensor.shape.rbegin(); it != tensor.shape.rend(); ++it)
      put(head, static_cast<std::uint64_t>(*it));
    put(head, *type);
    put(head, offset);
    offset +=
        static_cast<std::uint64_t>((tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment);
  }
  WEFT_ASSIGN(OutputFile out, OutputFile::create(path));
  WEFT_TRY(out.write(head));
  WEFT_TRY(out.write_tensors(tensors, kAlignment, progress));
  WEFT_TRY(out.pad(kAlignment));
  return out.commit();
}

Status set_model_metadata(GgufMetadata& metadata, const ModelConfig& config) {
  // Mistral's files are `llama` ones.
  const std::string arch(config.family == Family::kMistral ? "llama" : to_string(config.family));
  const auto u32 = [&](std::string_view key, std::int64_t value) {
    metadata.set_u32(fmt::format("{}.{}", arch, key), static_cast<std::uint32_t>(value));
  };
  metadata.set_text("general.architecture", arch);
  u32("context_length", config.max_position);
  u32("embedding_length", config.hidden);
  u32("block_count", config.layers);
  u32("feed_forward_length", config.intermediate);
  u32("attention.head_count", config.heads);
  u32("attention.head_count_kv", config.kv_heads);
  if (config.head_dim * config.heads != config.hidden || config.family == Family::kQwen3) {
    u32("attention.key_length", config.head_dim);
    u32("attention.value_length", config.head_dim);
  }
  if (config.norm == NormKind::kLayer) {
    metadata.set_f32(arch + ".attention.layer_norm_epsilon", static_cast<float>(config.norm_eps));
    return {};
  }
  metadata.set_f32(arch + ".attention.layer_norm_rms_epsilon", static_cast<float>(config.norm_eps));
  u32("vocab_size", config.vocab_size);
  if (config.activation != Activation::kSilu) {
    return fail(ErrorCode::kUnsupported, "GGUF's {} architecture has silu only", arch);
  }
  if (config.sliding_window > 0) {
    if (!config.sliding_layers.empty()) {
      return fail(ErrorCode::kUnsupported,
                  "GGUF's {} architecture cannot slide over some layers only", arch);
    }
    u32("attention.sliding_window", config.sliding_window);
  }
  return set_rope_metadata(metadata, arch, config);
}

}  // namespace weft::model
