#include "weft/model/load.h"

#include "weft/base/file.h"
#include "weft/base/log.h"
#include "weft/model/chat_template_file.h"
#include "weft/model/fetch.h"
#include "weft/model/gguf_model.h"
#include "weft/model/huggingface.h"
#include "weft/model/known_files.h"
#include "weft/model/llama2c.h"
#include "weft/model/safetensors.h"

namespace weft::model {
namespace {

namespace fs = std::filesystem;

// Files up to this size are compared with the published digests when loaded (about
// 10 ms); `weft model inspect --verify` compares any.
constexpr std::int64_t kDigestWhenLoading = std::int64_t{8} << 20;

// A template outside the supported subset costs the chat form, not the model.
void set_chat_template(Model& model, const std::optional<TemplateSource>& source) {
  if (!source) return;
  auto compiled = ChatTemplate::parse(source->text);
  if (compiled) {
    model.chat_template = std::move(*compiled);
  } else {
    model.warnings.push_back(fmt::format("{}: its chat template cannot be used: {}",
                                         model.path.string(), compiled.error().message));
  }
}

Status load_gguf(Model& model) {
  WEFT_ASSIGN(const auto file, GgufFile::open(model.path));
  model.format = "gguf";
  WEFT_ASSIGN(model.config, config_from_gguf(*file));
  WEFT_ASSIGN(model.weights, weights_from_gguf(file, model.config));
  if (file->has("tokenizer.ggml.model")) {
    WEFT_ASSIGN(model.tokenizer, tokenizer_from_gguf(*file));
  }
  WEFT_ASSIGN(const auto chat, chat_template_from_gguf(*file));
  set_chat_template(model, chat);
  return {};
}

Status load_safetensors(Model& model) {
  std::error_code error;
  const bool folder = fs::is_directory(model.path, error);
  const fs::path home = folder ? model.path : model.path.parent_path();
  model.format = "safetensors";
  WEFT_ASSIGN(model.config, read_huggingface_config(home));
  WEFT_ASSIGN(const auto files, open_safetensors_model(model.path));
  WEFT_ASSIGN(model.weights, weights_from_safetensors(files, model.config));
  bool has_tokenizer = false;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json"}) {
    has_tokenizer = has_tokenizer || fs::exists(home / name, error);
  }
  if (has_tokenizer) {
    WEFT_ASSIGN(model.tokenizer, load_tokenizer(home));
  }
  WEFT_ASSIGN(const auto chat, chat_template_from_directory(home));
  set_chat_template(model, chat);
  return {};
}

Status load_llama2c_pair(Model& model) {
  model.format = "llama2.c";
  WEFT_ASSIGN(Llama2cModel loaded, load_llama2c(model.path));
  model.config = std::move(loaded.config);
  model.weights = std::move(loaded.weights);
  WEFT_ASSIGN(const fs::path tokenizer,
              find_llama2c_tokenizer(model.path, model.config.vocab_size));
  WEFT_ASSIGN(const std::string bytes, read_file(tokenizer));
  WEFT_ASSIGN(model.tokenizer,
              tokenizer_from_llama2c(bytes, model.config.vocab_size, tokenizer.string()));
  return {};
}

Status compare_with_published(Model& model) {
  WEFT_ASSIGN(const KnownFileCheck check, check_known_file(model.path, kDigestWhenLoading));
  if (check.verdict != KnownFileVerdict::kDiffers) return {};
  model.warnings.push_back(
      fmt::format("{} has the size and header of {} but other content (SHA-256 {}, published {}): "
                  "it is damaged, or "
                  "another model of the same shape",
                  model.path.string(), check.name, check.sha256, check.expected));
  return {};
}

}  // namespace

Result<fs::path> resolve_model(const std::string& spec) {
  std::error_code error;
  if (fs::exists(spec, error)) return fs::path(spec);
  if (const FetchableModel* known = find_fetchable(spec)) {
    WEFT_ASSIGN(const fs::path path, fetched_path(*known));
    if (fs::exists(path, error)) return path;
    return fail(ErrorCode::kNotFound, "the model '{}' is not here yet; run `weft model fetch {}`",
                spec, spec);
  }
  return fail(ErrorCode::kNotFound,
              "there is no file or directory '{}', and no model of that name; `weft model fetch "
              "--list` shows names",
              spec);
}

Result<Model> load_model(const std::string& spec) {
  Model model;
  WEFT_ASSIGN(model.path, resolve_model(spec));
  std::error_code error;
  const bool folder = fs::is_directory(model.path, error);
  if (model.path == spec) {
    fs::path plain = fs::absolute(model.path, error).lexically_normal();
    if (!plain.has_filename()) plain = plain.parent_path();  // "folder/"
    model.name = folder ? plain.filename().string() : plain.stem().string();
  } else {
    model.name = spec;
  }
  const std::string kind = folder ? ".safetensors" : model.path.extension().string();
  if (kind == ".gguf") {
    WEFT_TRY(load_gguf(model));
  } else if (kind == ".safetensors") {
    WEFT_TRY(load_safetensors(model));
  } else if (kind == ".bin") {
    WEFT_TRY(load_llama2c_pair(model));
  } else {
    return fail(ErrorCode::kUnsupported,
                "{}: is neither a .gguf, a .safetensors, a llama2.c .bin file nor a model folder",
                model.path.string());
  }
  if (!folder) WEFT_TRY(compare_with_published(model));
  if (model.tokenizer != nullptr && model.tokenizer->vocab_size() > model.config.vocab_size) {
    model.warnings.push_back(
        fmt::format("{}: its tokenizer has {} tokens and its embedding {} rows",
                    model.path.string(), model.tokenizer->vocab_size(), model.config.vocab_size));
  }
  for (const std::string& warning : model.warnings) log_warn("{}", warning);
  return model;
}

}  // namespace weft::model
