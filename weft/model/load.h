// load_model: one call from "what the user typed" to a model ready to run.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/model/chat_template.h"
#include "weft/model/config.h"
#include "weft/model/tokenizer.h"
#include "weft/model/weights.h"

namespace weft::model {

struct Model {
  std::string name;  // for people and the API, e.g. "smollm2-135m-instruct"
  std::filesystem::path path;
  std::string format;  // "gguf", "safetensors", "llama2.c"
  ModelConfig config;
  WeightSet weights;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  // What a user should know: a known file whose content is not the published one, a
  // chat template that does not compile. load_model logs each of them too.
  std::vector<std::string> warnings;
};

// `spec` is a .gguf, .safetensors or llama2.c .bin file, a directory (safetensors
// with config.json and a tokenizer), or a name that `weft model fetch` knows and
// has fetched. Weights are mapped, not copied, where the format allows.
Result<Model> load_model(const std::string& spec);

// Resolves a name to the fetched file, without fetching. kNotFound says how to fetch.
Result<std::filesystem::path> resolve_model(const std::string& spec);

}  // namespace weft::model
