// What a GGUF file says about its model: configuration and weights under
// canonical names.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "weft/base/result.h"
#include "weft/model/config.h"
#include "weft/model/gguf.h"
#include "weft/model/weights.h"

namespace weft::model {

// The configuration from metadata and tensor shapes. Architectures: llama (also
// Mistral's), qwen2, qwen3, gpt2; others are refused by name (kUnsupported).
Result<ModelConfig> config_from_gguf(const GgufFile& file);

// The tensors under canonical names. Views point into the map, except q and k of
// the `llama` architecture: their rows are interleaved in the file and are copied
// into the half-split order (docs/formats/gguf.md). The set keeps `file` alive.
Result<WeightSet> weights_from_gguf(const std::shared_ptr<const GgufFile>& file,
                                    const ModelConfig& config);

// Canonical name <-> GGUF name. Empty: no such tensor. GPT-2's fused
// "blk.N.attn_qkv" is split by weights_from_gguf and has no single canonical name.
std::string canonical_from_gguf_name(std::string_view name);
std::string gguf_from_canonical_name(std::string_view name);

}  // namespace weft::model
