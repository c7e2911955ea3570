// Converting models between GGUF types, safetensors folders and llama2.c.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "weft/base/dtype.h"
#include "weft/base/result.h"
#include "weft/base/thread_pool.h"
#include "weft/model/config.h"
#include "weft/model/load.h"
#include "weft/model/tensor_source.h"

namespace weft::model {

enum class ModelFormat { kGguf, kSafetensors, kLlama2c };
std::string_view to_string(ModelFormat format);
// By the name: .gguf, .bin, and a folder (no extension) for safetensors.
Result<ModelFormat> format_of_target(const std::filesystem::path& to);

struct ConvertOptions {
  DType type = DType::kBF16;  // of the matrices
  bool overwrite = false;
  std::int64_t shard_bytes = std::int64_t{4} << 30;  // of safetensors files
  WriteProgress progress;
};

struct ConvertReport {
  ModelFormat format = ModelFormat::kGguf;
  std::filesystem::path path;
  std::int64_t bytes = 0;  // of tensors
  std::map<std::string, std::int64_t> tensors_by_type;
  std::vector<std::string> fallbacks;  // "name [shape]: type" where the type asked for did not fit
  std::int64_t requantised = 0;        // tensors that were quantised before and changed type
  std::vector<std::string> notes;      // what was not carried over, and why
};

// The type that a GGUF file of `wanted` holds `name` in: vectors and positions F32; the
// output matrix Q6_K or Q8_0 where `wanted` has fewer than 6 bits (as llama.cpp);
// columns that are not whole blocks Q8_0, or F16 where those do not fit either.
struct TypeChoice {
  DType type;
  bool fell_back;
};
TypeChoice gguf_tensor_type(const ModelConfig& config, const TensorSpec& tensor, DType wanted);

// Writes `model` to `to`, which appears at once or not at all. kInvalidArgument when it
// exists and `overwrite` is not set; kUnsupported when the target cannot hold the model.
Result<ConvertReport> convert_model(const Model& model, const std::filesystem::path& to,
                                    const ConvertOptions& options, ThreadPool& pool);

}  // namespace weft::model
