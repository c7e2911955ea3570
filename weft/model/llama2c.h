// llama2.c checkpoints (.bin, the headerless "version 0"): docs/formats/llama2c.md.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "weft/base/file.h"
#include "weft/base/result.h"
#include "weft/model/config.h"
#include "weft/model/tensor_source.h"
#include "weft/model/weights.h"

namespace weft::model {

struct Llama2cModel {
  ModelConfig config;
  WeightSet weights;  // canonical names and row order
};

// Reads the file; views point into its map, but q and k, whose rows are interleaved
// in the file, are copied. kCorrupt when the size does not follow from the header;
// kUnsupported for the later versions with the magic "ak42".
Result<Llama2cModel> load_llama2c(const std::filesystem::path& path);
// The same over bytes that `storage` keeps alive.
Result<Llama2cModel> parse_llama2c(std::span<const std::byte> bytes,
                                   std::shared_ptr<const void> storage, const std::string& name);

// Writes a model in f32. kUnsupported for what the format cannot say (biases, QK-norm,
// rotary scaling or a base other than 10,000, sliding windows, other families).
Status write_llama2c(const std::filesystem::path& path, const ModelConfig& config,
                     const WeightSet& weights, const WriteProgress& progress = {});

// The tokenizer file beside a checkpoint: "tok<vocabulary>.bin", else "tokenizer.bin".
// kNotFound names what was looked for.
Result<std::filesystem::path> find_llama2c_tokenizer(const std::filesystem::path& checkpoint,
                                                     std::int64_t vocab_size);

}  // namespace weft::model
