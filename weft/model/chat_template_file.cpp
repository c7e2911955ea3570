#include "weft/model/chat_template_file.h"

#include "weft/base/file.h"
#include "weft/model/gguf.h"

namespace weft::model {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMaxConfigBytes = std::size_t{64} << 20;

// A special token of tokenizer_config.json: its text, or an object that holds it.
std::optional<std::string> token_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (const Json* content = value.is_object() ? json_find(value, "content") : nullptr;
      content != nullptr && content->is_string()) {
    return content->get<std::string>();
  }
  return std::nullopt;
}

// `chat_template` is a string, or a list of named ones of which "default" counts.
std::optional<std::string> template_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return std::nullopt;
  for (const auto& entry : value) {
    const Json* name = entry.is_object() ? json_find(entry, "name") : nullptr;
    const Json* text = entry.is_object() ? json_find(entry, "template") : nullptr;
    if (name != nullptr && *name == "default" && text != nullptr && text->is_string()) {
      return text->get<std::string>();
    }
  }
  return std::nullopt;
}

}  // namespace

Result<std::optional<TemplateSource>> chat_template_from_gguf(const GgufFile& file) {
  if (!file.has("tokenizer.chat_template")) return std::nullopt;
  TemplateSource out;
  WEFT_ASSIGN(const auto text, file.text("tokenizer.chat_template"));
  out.text = text;
  if (file.has("tokenizer.ggml.tokens")) {
    WEFT_ASSIGN(const auto tokens, file.texts("tokenizer.ggml.tokens"));
    static constexpr std::pair<const char*, const char*> kNames[] = {{"bos", "bos_token"},
                                                                     {"eos", "eos_token"},
                                                                     {"padding", "pad_token"},
                                                                     {"unknown", "unk_token"}};
    for (const auto& [key, name] : kNames) {
      WEFT_ASSIGN(const auto id,
                  file.integer_or(fmt::format("tokenizer.ggml.{}_token_id", key), -1));
      if (id >= 0 && static_cast<std::size_t>(id) < tokens.size()) {
        out.variables[name] = std::string(tokens[static_cast<std::size_t>(id)]);
      }
    }
  }
  return out;
}

Result<std::optional<TemplateSource>> chat_template_from_directory(const fs::path& directory) {
  std::error_code error;
  TemplateSource out;
  bool found = false;
  const fs::path config = directory / "tokenizer_config.json";
  if (fs::exists(config, error)) {
    WEFT_ASSIGN(const std::string text, read_file(config, kMaxConfigBytes));
    WEFT_ASSIGN(const Json json, parse_json(text, config.string()));
    if (!json.is_object()) return fail(ErrorCode::kCorrupt, "{}: not an object", config.string());
    if (const Json* value = json_find(json, "chat_template")) {
      if (auto source = template_text(*value)) {
        out.text = std::move(*source);
        found = true;
      }
    }
    for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
      const Json* value = json_find(json, name);
      if (value == nullptr) continue;
      if (auto token = token_text(*value)) out.variables[name] = std::move(*token);
    }
  }
  const fs::path jinja = directory / "chat_template.jinja";
  if (fs::exists(jinja, error)) {
    WEFT_ASSIGN(out.text, read_file(jinja, kMaxConfigBytes));
    found = true;
  }
  if (!found) return std::nullopt;
  return out;
}

Result<TemplateSource> read_chat_template(const fs::path& path) {
  std::error_code error;
  std::optional<TemplateSource> found;
  if (fs::is_directory(path, error)) {
    WEFT_ASSIGN(found, chat_template_from_directory(path));
  } else if (path.extension() == ".gguf") {
    WEFT_ASSIGN(const auto file, GgufFile::open(path));
    WEFT_ASSIGN(found, chat_template_from_gguf(*file));
  } else {
    WEFT_ASSIGN(found, chat_template_from_directory(path.parent_path()));
  }
  if (!found) return fail(ErrorCode::kNotFound, "{} has no chat template", path.string());
  return std::move(*found);
}

}  // namespace weft::model
