// Where model files keep their chat template.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "weft/base/json.h"
#include "weft/base/result.h"

namespace weft::model {

class GgufFile;

struct TemplateSource {
  std::string text;
  Json variables = Json::object();  // bos_token, eos_token, ... as far as the file names them
};

// A GGUF's tokenizer.chat_template with its special tokens; nothing if it has none.
Result<std::optional<TemplateSource>> chat_template_from_gguf(const GgufFile& file);
// chat_template.jinja or tokenizer_config.json of a Hugging Face directory.
Result<std::optional<TemplateSource>> chat_template_from_directory(
    const std::filesystem::path& directory);
// Either, by what lies at `path`; kNotFound if there is no template.
Result<TemplateSource> read_chat_template(const std::filesystem::path& path);

}  // namespace weft::model
