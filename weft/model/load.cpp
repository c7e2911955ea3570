#include "weft/model/load.h"

#include "weft/base/log.h"
#include "weft/model/chat_template_file.h"
#include "weft/model/fetch.h"
#include "weft/model/gguf_model.h"

namespace weft::model {
namespace {

namespace fs = std::filesystem;

// A template that is not understood does not keep the model from being used.
void set_chat_template(Model& model, const std::optional<TemplateSource>& source,
                       const fs::path& path) {
  if (!source) return;
  auto chat_template = ChatTemplate::parse(source->text);
  if (chat_template) {
    model.chat_template = std::move(*chat_template);
  } else {
    log_warn("{}: the chat template is left out: {}", path.string(), chat_template.error().message);
  }
}

Result<Model> load_gguf(const fs::path& path) {
  WEFT_ASSIGN(const auto file, GgufFile::open(path));
  Model model;
  model.format = "gguf";
  WEFT_ASSIGN(model.config, config_from_gguf(*file));
  WEFT_ASSIGN(model.weights, weights_from_gguf(file, model.config));
  if (file->has("tokenizer.ggml.model")) {
    WEFT_ASSIGN(model.tokenizer, tokenizer_from_gguf(*file));
  }
  WEFT_ASSIGN(const auto source, chat_template_from_gguf(*file));
  set_chat_template(model, source, path);
  return model;
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
  WEFT_ASSIGN(const fs::path path, resolve_model(spec));
  if (path.extension() != ".gguf") {
    return fail(ErrorCode::kUnsupported, "{}: only .gguf files are read so far", path.string());
  }
  WEFT_ASSIGN(Model model, load_gguf(path));
  model.path = path;
  model.name = path == spec ? path.stem().string() : spec;
  return model;
}

}  // namespace weft::model
