#include "weft/model/convert.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numbers>
#include <optional>

#include "weft/base/file.h"
#include "weft/model/gguf.h"
#include "weft/model/gguf_model.h"
#include "weft/model/gguf_writer.h"
#include "weft/model/huggingface.h"
#include "weft/model/llama2c.h"
#include "weft/model/row_order.h"

namespace weft::model {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kRowsPerTask = 16;

// The rows of `view` as `type`, in parallel over rows; equal types keep their bytes.
Status convert_rows(const TensorView& view, DType type, ThreadPool& pool,
                    std::span<std::byte> out) {
  if (view.dtype == type) {
    std::memcpy(out.data(), view.data, out.size());
    return {};
  }
  const std::int64_t columns = view.columns();
  WEFT_ASSIGN(const std::int64_t row_bytes, tensor_bytes(type, 1, columns));
  std::mutex mutex;
  std::optional<Error> failed;
  pool.parallel_for(view.rows(), kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> values(static_cast<std::size_t>(kRowsPerTask * columns));
    for (std::int64_t row = begin; row < end; row += kRowsPerTask) {
      const std::int64_t last = std::min(end, row + kRowsPerTask);
      auto status = dequantize_rows(view, row, last, values.data());
      if (status)
        status =
            quantize_rows(type, values.data(), last - row, columns, out.data() + row * row_bytes);
      if (status) continue;
      const std::lock_guard lock(mutex);
      if (!failed) failed = std::move(status).error();
      return;
    }
  });
  if (failed) return std::unexpected(std::move(*failed));
  return {};
}

// The factors on the wavelengths that Llama 3's scaling means (llama.cpp's
// convert_hf_to_gguf.py; transformers, _compute_llama3_parameters).
std::vector<float> llama3_factors(const RopeConfig& rope, std::int64_t head_dim) {
  const std::int64_t dim = rope.rotary_dim == 0 ? head_dim : rope.rotary_dim;
  const auto original = static_cast<double>(rope.original_max_position);
  std::vector<float> factors;
  for (std::int64_t i = 0; i < dim; i += 2) {
    const double frequency =
        std::pow(rope.theta, -static_cast<double>(i) / static_cast<double>(dim));
    const double wavelength = 2 * std::numbers::pi / frequency;
    double factor = 1.0;
    if (wavelength > original / rope.low_freq_factor) {
      factor = rope.factor;
    } else if (wavelength >= original / rope.high_freq_factor) {
      const double smooth = (original / wavelength - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
      factor = 1.0 / ((1.0 - smooth) / rope.factor + smooth);
    }
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

// Frequency factors of a GGUF file as the Llama 3 scaling that made them, if one did:
// the published models have factor 8 or 32, low 1, high 4 and 8,192 positions.
void recognise_llama3(ModelConfig& config) {
  if (config.rope.frequency_factors.empty() || config.rope.scaling != RopeScaling::kNone) return;
  for (const double factor : {8.0, 32.0}) {
    RopeConfig rope = config.rope;
    rope.scaling = RopeScaling::kLlama3;
    rope.factor = factor;
    rope.low_freq_factor = 1.0;
    rope.high_freq_factor = 4.0;
    rope.original_max_position = 8192;
    const std::vector<float> factors = llama3_factors(rope, config.head_dim);
    bool same = factors.size() == rope.frequency_factors.size();
    for (std::size_t i = 0; same && i < factors.size(); ++i) {
      same = std::fabs(factors[i] - rope.frequency_factors[i]) <= 1e-3F * factors[i];
    }
    if (!same) continue;
    rope.frequency_factors.clear();
    config.rope = std::move(rope);
    return;
  }
}

// Renames folder `part` to `to`. A folder that is there is moved aside first, so that
// one of the two is there whenever this ends, and then removed.
Status put_in_place(const fs::path& part, const fs::path& to) {
  std::error_code error;
  const fs::path old = to.string() + ".old";
  const bool replaces = fs::exists(to, error);
  if (replaces) fs::rename(to, old, error);
  if (!error) fs::rename(part, to, error);
  if (error) {
    const std::string reason = error.message();
    if (replaces && !fs::exists(to, error)) fs::rename(old, to, error);
    return fail(ErrorCode::kIo, "cannot rename {}: {}", part.string(), reason);
  }
  if (replaces) fs::remove_all(old, error);
  return {};
}

// llama.cpp, enum llama_ftype.
std::uint32_t file_type(DType type) {
  switch (type) {
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ8_0:
      return 7;
    case DType::kQ4_K:
      return 14;
    case DType::kQ5_K:
      return 16;
    case DType::kQ6_K:
      return 18;
    case DType::kBF16:
      return 32;
    default:
      return 0;
  }
}

class Converter {
 public:
  Converter(const Model& model, const ConvertOptions& options, ThreadPool& pool)
      : model_(model), options_(options), pool_(pool) {}

  Result<ConvertReport> to_gguf(const fs::path& to) {
    GgufMetadata metadata;
    WEFT_TRY(fill_metadata(metadata));
    WEFT_ASSIGN(std::vector<TensorSource> sources, gguf_tensors());
    WEFT_TRY(write_gguf(to, metadata, std::move(sources), options_.progress));
    return std::move(report_);
  }

  Result<ConvertReport> to_folder(const fs::path& to) {
    ModelConfig config = model_.config;
    recognise_llama3(config);
    if (options_.type != DType::kF32 && options_.type != DType::kF16 &&
        options_.type != DType::kBF16) {
      return fail(ErrorCode::kUnsupported, "a safetensors folder holds F32, F16 or BF16, not {}",
                  to_string(options_.type));
    }
    WEFT_ASSIGN(auto sources, huggingface_tensors(config, model_.weights, options_.type));
    count_folder(sources);
    const fs::path part = fmt::format("{}.{}.part", to.string(), ::getpid());
    std::error_code error;
    fs::create_directories(part, error);
    if (error) return fail(ErrorCode::kIo, "cannot make {}: {}", part.string(), error.message());
    auto status = fill_folder(part, config, std::move(sources));
    if (status) status = put_in_place(part, to);
    if (!status) {
      fs::remove_all(part, error);
      return std::unexpected(std::move(status).error());
    }
    return std::move(report_);
  }

  Result<ConvertReport> to_llama2c(const fs::path& to) {
    if (options_.type != DType::kF32) {
      return fail(ErrorCode::kUnsupported, "a llama2.c file holds F32, not {}",
                  to_string(options_.type));
    }
    WEFT_TRY(write_llama2c(to, model_.config, model_.weights, options_.progress));
    for (const NamedTensor& tensor : model_.weights.tensors())
      count(tensor.view.dtype, DType::kF32, 4 * tensor.view.elements());
    WEFT_TRY(copy_llama2c_tokenizer(to));
    return std::move(report_);
  }

 private:
  void count(DType before, DType after, std::int64_t bytes) {
    ++report_.tensors_by_type[std::string(to_string(after))];
    report_.bytes += bytes;
    if (is_quantized(before) && before != after && is_quantized(after)) ++report_.requantised;
  }

  void count_folder(const std::vector<TensorSource>& sources) {
    for (const TensorSource& source : sources) count(options_.type, options_.type, source.bytes());
  }

  Status fill_folder(const fs::path& part, const ModelConfig& config,
                     std::vector<TensorSource> sources) {
    // The small files first: what they refuse is known before the large ones are written.
    const std::string chat = model_.chat_template ? model_.chat_template->source() : "";
    WEFT_TRY(write_huggingface_files(part, config, options_.type, model_.tokenizer.get(), chat));
    if (model_.tokenizer == nullptr)
      report_.notes.emplace_back("the model has no tokenizer; none was written");
    return write_safetensors_model(part, std::move(sources), options_.shard_bytes,
                                   options_.progress);
  }

  Status copy_llama2c_tokenizer(const fs::path& to) {
    if (model_.format != "llama2.c") {
      report_.notes.emplace_back(
          "no tokenizer was written: llama2.c's format needs sentencepiece scores, which this "
          "model "
          "does not come with");
      return {};
    }
    WEFT_ASSIGN(const fs::path from, find_llama2c_tokenizer(model_.path, model_.config.vocab_size));
    WEFT_ASSIGN(const std::string bytes, read_file(from));
    return write_file_atomic(to.parent_path() / fmt::format("tok{}.bin", model_.config.vocab_size),
                             bytes);
  }

  Status fill_metadata(GgufMetadata& metadata) {
    if (model_.format == "gguf") {
      WEFT_ASSIGN(const auto file, GgufFile::open(model_.path));
      for (const std::string& key : file->keys()) {
        if (!key.starts_with("split.") && key != "general.alignment")
          metadata.copy(key, *file->find(key));
      }
    } else {
      WEFT_TRY(set_model_metadata(metadata, model_.config));
      metadata.set_text("general.name", model_.name);
      if (model_.tokenizer != nullptr) {
        WEFT_TRY(set_tokenizer_metadata(metadata, model_.config, *model_.tokenizer, report_.notes));
      } else {
        report_.notes.emplace_back("the model has no tokenizer; none was written");
      }
      if (model_.chat_template)
        metadata.set_text("tokenizer.chat_template", model_.chat_template->source());
    }
    metadata.set_u32("general.file_type", file_type(options_.type));
    if (is_quantized(options_.type)) metadata.set_u32("general.quantization_version", 2);
    return {};
  }

  Result<std::vector<TensorSource>> gguf_tensors() {
    std::vector<TensorSource> sources;
    const ModelConfig& config = model_.config;
    const bool gpt2 = config.family == Family::kGpt2;
    for (const TensorSpec& spec : tensor_specs(config)) {
      WEFT_ASSIGN(const TensorView view, model_.weights.get(spec.name));
      const TypeChoice choice = gguf_tensor_type(config, spec, options_.type);
      if (choice.fell_back) {
        report_.fallbacks.push_back(fmt::format(
            "{} [{}]: {}", spec.name, fmt::join(spec.shape, ", "), to_string(choice.type)));
      }
      TensorSource source{gguf_from_canonical_name(spec.name), choice.type, spec.shape, {}};
      count(view.dtype, choice.type, source.bytes());
      if (gpt2 && spec.name.find("self_attn.q_proj") != std::string::npos) {
        WEFT_ASSIGN(source, fused_qkv(std::move(source), spec.name));
      } else if (gpt2 && (spec.name.find("self_attn.k_proj") != std::string::npos ||
                          spec.name.find("self_attn.v_proj") != std::string::npos)) {
        continue;  // written with q
      } else {
        source.fill = [this, view, type = choice.type, heads = interleaved_heads(spec.name),
                       name = spec.name](std::span<std::byte> out) -> Status {
          WEFT_TRY(convert_rows(view, type, pool_, out));
          if (heads == 0) return {};
          WEFT_ASSIGN(const auto rows,
                      interleave_rows({out.data(), type, view.shape}, heads, name));
          std::memcpy(out.data(), rows->data(), out.size());
          return {};
        };
      }
      sources.push_back(std::move(source));
    }
    add_frequency_factors(sources);
    return sources;
  }

  // Heads whose rows GGUF's `llama` architecture interleaves; 0: rows stay.
  std::int64_t interleaved_heads(const std::string& name) const {
    const ModelConfig& config = model_.config;
    if (config.family != Family::kLlama && config.family != Family::kMistral) return 0;
    if (name.find("self_attn.q_proj") != std::string::npos) return config.heads;
    if (name.find("self_attn.k_proj") != std::string::npos) return config.kv_heads;
    return 0;
  }

  Result<TensorSource> fused_qkv(TensorSource source, const std::string& q_name) {
    std::vector<TensorView> parts;
    for (const char letter : {'q', 'k', 'v'}) {
      std::string name = q_name;
      name[name.find("q_proj")] = letter;
      WEFT_ASSIGN(const TensorView view, model_.weights.get(name));
      parts.push_back(view);
    }
    source.name.replace(source.name.find("attn_q"), 6, "attn_qkv");
    source.shape[0] = parts[0].shape[0] + parts[1].shape[0] + parts[2].shape[0];
    source.fill = [this, parts, type = source.dtype](std::span<std::byte> out) -> Status {
      for (const TensorView& part : parts) {
        const auto size = static_cast<std::size_t>(TensorView{nullptr, type, part.shape}.bytes());
        WEFT_TRY(convert_rows(part, type, pool_, out.first(size)));
        out = out.subspan(size);
      }
      return {};
    };
    return source;
  }

  void add_frequency_factors(std::vector<TensorSource>& sources) {
    const RopeConfig& rope = model_.config.rope;
    std::vector<float> factors = rope.frequency_factors;
    if (rope.scaling == RopeScaling::kLlama3)
      factors = llama3_factors(rope, model_.config.head_dim);
    if (factors.empty()) return;
    const auto size = static_cast<std::int64_t>(factors.size());
    sources.insert(sources.begin(), TensorSource{"rope_freqs.weight",
                                                 DType::kF32,
                                                 {size},
                                                 [factors](std::span<std::byte> out) -> Status {
                                                   std::memcpy(out.data(), factors.data(),
                                                               out.size());
                                                   return {};
                                                 }});
    count(DType::kF32, DType::kF32, 4 * size);
  }

  const Model& model_;
  const ConvertOptions& options_;
  ThreadPool& pool_;
  ConvertReport report_;
};

}  // namespace

std::string_view to_string(ModelFormat format) {
  switch (format) {
    case ModelFormat::kGguf:
      return "gguf";
    case ModelFormat::kSafetensors:
      return "safetensors";
    case ModelFormat::kLlama2c:
      return "llama2.c";
  }
  return "unknown";
}

Result<ModelFormat> format_of_target(const fs::path& to) {
  const std::string extension = to.extension().string();
  std::error_code error;
  if (extension == ".gguf") return ModelFormat::kGguf;
  if (extension == ".bin") return ModelFormat::kLlama2c;
  if (extension == ".safetensors") {
    return fail(ErrorCode::kInvalidArgument,
                "{}: name a folder instead; a model in safetensors needs its config.json and "
                "tokenizer beside it",
                to.string());
  }
  for (const char* other : {".pt", ".pth", ".onnx", ".ggml", ".json", ".h5"}) {
    if (extension == other) {
      return fail(ErrorCode::kUnsupported,
                  "{}: Weft writes .gguf, llama2.c .bin and safetensors folders", to.string());
    }
  }
  return ModelFormat::kSafetensors;
}

TypeChoice gguf_tensor_type(const ModelConfig& config, const TensorSpec& tensor, DType wanted) {
  if (tensor.shape.size() < 2 || tensor.name == "model.embed_positions.weight")
    return {DType::kF32, false};
  const std::int64_t columns = tensor.shape.back();
  const bool output =
      tensor.name == (config.tie_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
  const bool few_bits = wanted == DType::kQ4_0 || wanted == DType::kQ4_1 ||
                        wanted == DType::kQ4_K || wanted == DType::kQ5_K;
  if (output && few_bits) {
    if (columns % 256 == 0) return {DType::kQ6_K, false};
    wanted = DType::kQ8_0;
  }
  if (columns % block_elements(wanted) == 0) return {wanted, false};
  return {columns % block_elements(DType::kQ8_0) == 0 ? DType::kQ8_0 : DType::kF16, true};
}

Result<ConvertReport> convert_model(const Model& model, const fs::path& target,
                                    const ConvertOptions& options, ThreadPool& pool) {
  fs::path to = target;
  if (!to.has_filename()) to = to.parent_path();  // "folder/"
  WEFT_ASSIGN(const ModelFormat format, format_of_target(to));
  std::error_code error;
  if (fs::exists(to, error)) {
    if (fs::equivalent(to, model.path, error)) {
      return fail(ErrorCode::kInvalidArgument, "{} is the model itself; name another target",
                  to.string());
    }
    const bool empty_folder = fs::is_directory(to, error) && fs::is_empty(to, error);
    if (!options.overwrite && !empty_folder) {
      return fail(ErrorCode::kInvalidArgument, "{} exists; give --overwrite to replace it",
                  to.string());
    }
    if (fs::is_directory(to, error) != (format == ModelFormat::kSafetensors)) {
      return fail(ErrorCode::kInvalidArgument, "{} exists and is {}", to.string(),
                  format == ModelFormat::kSafetensors ? "a file" : "a folder");
    }
    // Replacing a folder removes it: only one that looks like a model may go.
    if (format == ModelFormat::kSafetensors && !empty_folder &&
        !fs::exists(to / "config.json", error)) {
      return fail(ErrorCode::kInvalidArgument,
                  "{} is a folder without a config.json; it is not replaced", to.string());
    }
  }
  if (to.has_parent_path() && !fs::is_directory(to.parent_path(), error)) {
    return fail(ErrorCode::kNotFound, "there is no folder {} to write into",
                to.parent_path().string());
  }
  Converter converter(model, options, pool);
  Result<ConvertReport> report = format == ModelFormat::kGguf          ? converter.to_gguf(to)
                                 : format == ModelFormat::kSafetensors ? converter.to_folder(to)
                                                                       : converter.to_llama2c(to);
  if (!report) return std::unexpected(report.error().in(to.string()));
  report->format = format;
  report->path = to;
  return report;
}

}  // namespace weft::model
