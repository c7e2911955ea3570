// load_tokenizer: finds out what a file or folder holds.
#include <algorithm>
#include <cstring>

#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/model/gguf.h"
#include "weft/model/llama2c.h"
#include "weft/model/tokenizer_spec.h"

namespace weft::model {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestFile = std::size_t{256} << 20;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The vocabulary of a llama2.c tokenizer.bin, which does not give its size.
std::int64_t count_llama2c_tokens(std::string_view bytes) {
  std::int64_t count = 0;
  for (std::size_t at = 4; at + 8 <= bytes.size(); ++count) {
    std::int32_t length = 0;
    std::memcpy(&length, bytes.data() + at + 4, sizeof length);
    if (length < 0 || static_cast<std::size_t>(length) > bytes.size() - at - 8) break;
    at += 8 + static_cast<std::size_t>(length);
  }
  return count;
}

// "base64 rank" lines start with a base64 word, a space and a digit.
bool looks_like_ranks(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::size_t space = line.find(' ');
  return space != std::string_view::npos && space > 0 && space < 400 && space + 1 < line.size() &&
         line[space + 1] >= '0' && line[space + 1] <= '9' && line.find('\0') == line.npos;
}

// "bos_token": "<s>", or an object with its "content".
TokenId named_token(const Json& config, const char* key, const TokenizerSpec& spec) {
  if (!config.is_object() || !config.contains(key)) return -1;
  const Json& value = config[key];
  const Json& text = value.is_object() && value.contains("content") ? value["content"] : value;
  if (!text.is_string()) return -1;
  for (const AddedTokenSpec& token : spec.added) {
    if (token.content == text.get_ref<const std::string&>()) return token.id;
  }
  return -1;
}

void put_end(TokenizerSpec& spec, TokenId id) {
  if (id >= 0 && std::find(spec.eos.begin(), spec.eos.end(), id) == spec.eos.end()) {
    spec.eos.push_back(id);
  }
}

// Beside tokenizer.json: which tokens begin and end a text, and whether a text gets them.
Status apply_configs(const fs::path& folder, TokenizerSpec& spec) {
  if (is_there(folder / "tokenizer_config.json")) {
    const fs::path path = folder / "tokenizer_config.json";
    WEFT_ASSIGN(const std::string text, read_file(path, kLargestFile));
    WEFT_ASSIGN(const Json config, parse_json(text, path.string()));
    const TokenId bos = named_token(config, "bos_token", spec);
    const TokenId eos = named_token(config, "eos_token", spec);
    if (bos >= 0) spec.bos = bos;
    put_end(spec, eos);
    const auto wanted = [&](const char* key, TokenId id, std::vector<TokenId>& ids) {
      if (!config.is_object() || !config.contains(key) || !config[key].is_boolean() || id < 0) {
        return;
      }
      std::erase(ids, id);
      if (config[key].get<bool>()) ids.push_back(id);
    };
    wanted("add_bos_token", spec.bos, spec.prefix);
    wanted("add_eos_token", eos, spec.suffix);
  }
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path path = folder / name;
    if (!is_there(path)) continue;
    WEFT_ASSIGN(const std::string text, read_file(path, kLargestFile));
    WEFT_ASSIGN(const Json config, parse_json(text, path.string()));
    if (!config.is_object() || !config.contains("eos_token_id")) continue;
    const Json& ids = config["eos_token_id"];
    std::size_t size = spec.model.tokens.size();
    for (const AddedTokenSpec& token : spec.added) {
      size = std::max(size, static_cast<std::size_t>(token.id) + 1);
    }
    for (const Json& id : ids.is_array() ? ids : Json::array({ids})) {
      if (id.is_number_integer() && id.get<std::int64_t>() >= 0 && id.get<std::uint64_t>() < size) {
        put_end(spec, id.get<TokenId>());
      }
    }
  }
  return {};
}

Result<TokenizerSpec> spec_from_file(const fs::path& path) {
  WEFT_ASSIGN(const std::string bytes, read_file(path, kLargestFile));
  const std::string name = path.string();
  if (path.extension() == ".json") return spec_from_text(bytes, name);
  if (looks_like_ranks(bytes)) return spec_from_tiktoken(bytes, name);
  if (path.extension() == ".bin") {
    return spec_from_llama2c(bytes, count_llama2c_tokens(bytes), name);
  }
  return spec_from_sentencepiece(bytes, name);
}

Result<TokenizerSpec> spec_from_folder(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer.bin"}) {
    if (is_there(folder / name)) return spec_from_file(folder / name);
  }
  constexpr std::pair<const char*, const char*> kGpt2Files[] = {{"encoder.json", "vocab.bpe"},
                                                                {"vocab.json", "merges.txt"}};
  for (const auto& [vocabulary, merges] : kGpt2Files) {
    if (!is_there(folder / vocabulary) || !is_there(folder / merges)) continue;
    WEFT_ASSIGN(const std::string encoder, read_file(folder / vocabulary, kLargestFile));
    WEFT_ASSIGN(const std::string pairs, read_file(folder / merges, kLargestFile));
    return spec_from_gpt2_files(encoder, pairs);
  }
  return fail(ErrorCode::kNotFound,
              "{}: holds no tokenizer; one of tokenizer.json, tokenizer.model, tokenizer.bin, or "
              "vocab.json with merges.txt is needed",
              folder.string());
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    WEFT_ASSIGN(TokenizerSpec spec, spec_from_folder(path));
    WEFT_TRY(apply_configs(path, spec));
    return make_tokenizer(std::move(spec), path.string());
  }
  if (path.extension() == ".gguf") {
    WEFT_ASSIGN(const auto file, GgufFile::open(path));
    return tokenizer_from_gguf(*file);
  }
  if (path.extension() == ".bin") {  // of llama2.c: a tokenizer, or a model with one beside it
    if (const auto model = load_llama2c(path)) {
      WEFT_ASSIGN(const fs::path beside, find_llama2c_tokenizer(path, model->config.vocab_size));
      WEFT_ASSIGN(TokenizerSpec spec, spec_from_file(beside));
      return make_tokenizer(std::move(spec), beside.string());
    }
  }
  WEFT_ASSIGN(TokenizerSpec spec, spec_from_file(path));
  return make_tokenizer(std::move(spec), path.string());
}

}  // namespace weft::model
