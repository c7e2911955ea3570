// Hugging Face model folders: config.json, safetensors, tokenizer files.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/model/config.h"
#include "weft/model/safetensors.h"
#include "weft/model/tokenizer.h"
#include "weft/model/weights.h"

namespace weft::model {

// config.json of `folder`, with the end tokens of generation_config.json where there is one.
Result<ModelConfig> read_huggingface_config(const std::filesystem::path& folder);

// The tensors under canonical names. Views point into the maps, except GPT-2's matrices,
// which are stored [in, out] and copied. Buffers that are no weights (rotary inv_freq,
// GPT-2's masks) and a head that the configuration ties are left out.
Result<WeightSet> weights_from_safetensors(
    std::span<const std::shared_ptr<const SafetensorsFile>> files, const ModelConfig& config);

// What transformers calls the tensors: sources of `type` for every canonical tensor,
// read from `weights`, which must outlive them. Norms and biases are written as
// `type` too, as transformers does. GPT-2 is fused and transposed back.
Result<std::vector<TensorSource>> huggingface_tensors(const ModelConfig& config,
                                                      const WeightSet& weights, DType type);

// Everything of a model folder but the weights: config.json (`type` as its dtype),
// generation_config.json, tokenizer.json, tokenizer_config.json. kUnsupported when
// config.json cannot say what `config` says, or the tokenizer has no such form. A
// null tokenizer writes no tokenizer files.
Status write_huggingface_files(const std::filesystem::path& folder, const ModelConfig& config,
                               DType type, const Tokenizer* tokenizer,
                               const std::string& chat_template);

}  // namespace weft::model
