// Writing GGUF (version 3): metadata, then aligned tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"
#include "weft/model/config.h"
#include "weft/model/gguf.h"
#include "weft/model/tensor_source.h"
#include "weft/model/tokenizer.h"
#include "weft/model/weights.h"

namespace weft::model {

// The metadata of a file to be written, in order. A key that is set again keeps its
// place and takes the new value.
class GgufMetadata {
 public:
  void set_text(std::string_view key, std::string_view value);
  void set_u32(std::string_view key, std::uint32_t value);
  void set_f32(std::string_view key, float value);
  void set_bool(std::string_view key, bool value);
  void set_texts(std::string_view key, std::span<const std::string> values);
  void set_i32s(std::string_view key, std::span<const std::int32_t> values);
  void set_f32s(std::string_view key, std::span<const float> values);
  // A value as another file holds it.
  void copy(std::string_view key, const GgufValue& value);
  bool has(std::string_view key) const;

  struct Pair {
    std::string key, encoded;  // encoded: type and value as in the file
  };
  const std::vector<Pair>& pairs() const { return pairs_; }

 private:
  void set(std::string_view key, std::string encoded);
  std::vector<Pair> pairs_;
};

// Writes the file at once or not at all, in the order given. Shapes are slowest first
// as everywhere; names at most 63 bytes.
Status write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
                  std::vector<TensorSource> tensors, const WriteProgress& progress = {});

// Sets general.architecture and every key of the architecture. kUnsupported for what
// GGUF or llama.cpp cannot say (dynamic rotary scaling, windows on some layers only).
Status set_model_metadata(GgufMetadata& metadata, const ModelConfig& config);

// Sets tokenizer.ggml.* from a tokenizer that came from another format, by way of its
// tokenizer.json: byte-level BPE whose word pattern llama.cpp knows by name ("gpt2"), and
// sentencepiece-style BPE with byte tokens ("llama", a token's score from the rank of its
// merge). Others are kUnsupported. What GGUF leaves out goes into `notes`.
Status set_tokenizer_metadata(GgufMetadata& metadata, const ModelConfig& config,
                              const Tokenizer& tokenizer, std::vector<std::string>& notes);

}  // namespace weft::model
