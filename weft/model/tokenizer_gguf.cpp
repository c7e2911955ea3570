// The tokenizer in a GGUF file's metadata (keys tokenizer.ggml.*).
#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>

#include "weft/model/gguf.h"
#include "weft/model/gguf_word_patterns.h"
#include "weft/model/special_names.h"
#include "weft/model/tokenizer_spec.h"

namespace weft::model {
namespace {

// tokenizer.ggml.token_type (llama.cpp, llama.h: llama_token_type).
enum TokenType : std::int64_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int64_t> types;  // empty = all normal
};

TokenType type_of(const Vocabulary& vocabulary, std::size_t id) {
  return vocabulary.types.empty() ? kNormal : static_cast<TokenType>(vocabulary.types[id]);
}

Result<Vocabulary> read_vocabulary(const GgufFile& file) {
  Vocabulary vocabulary;
  WEFT_ASSIGN(const auto tokens, file.texts("tokenizer.ggml.tokens"));
  vocabulary.tokens.assign(tokens.begin(), tokens.end());
  if (file.has("tokenizer.ggml.token_type")) {
    WEFT_ASSIGN(vocabulary.types, file.integers("tokenizer.ggml.token_type"));
    if (vocabulary.types.size() != vocabulary.tokens.size()) {
      return fail(ErrorCode::kCorrupt, "{}: tokenizer.ggml.token_type has {} entries for {} tokens",
                  file.name(), vocabulary.types.size(), vocabulary.tokens.size());
    }
  }
  return vocabulary;
}

// Ids and flags that all kinds share.
Status read_ends(const GgufFile& file, const Vocabulary& vocabulary, TokenId default_bos,
                 TokenId default_eos, bool default_add_bos, TokenizerSpec& spec) {
  const auto size = static_cast<std::int64_t>(vocabulary.tokens.size());
  const auto id_of = [&](std::string_view key, TokenId fallback) -> Result<TokenId> {
    const std::string name = fmt::format("tokenizer.ggml.{}_token_id", key);
    WEFT_ASSIGN(const std::int64_t id, file.integer_or(name, fallback));
    if (id == 0xFFFFFFFF) return TokenId{-1};
    if (id < -1 || (id >= size && file.has(name))) {
      return fail(ErrorCode::kOutOfRange, "{}: {} is {}, but there are {} tokens", file.name(),
                  name, id, size);
    }
    return id >= size ? TokenId{-1} : static_cast<TokenId>(id);
  };
  WEFT_ASSIGN(spec.bos, id_of("bos", default_bos));
  WEFT_ASSIGN(const TokenId eos, id_of("eos", default_eos));
  std::set<TokenId> ends;
  const auto add_end = [&](TokenId id) {
    if (id >= 0 && ends.insert(id).second) spec.eos.push_back(id);
  };
  add_end(eos);
  for (const std::string_view key : {"eot", "eom"}) {
    WEFT_ASSIGN(const TokenId id, id_of(key, -1));
    add_end(id);
  }
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (type_of(vocabulary, id) != kNormal && ends_a_reply(vocabulary.tokens[id])) {
      add_end(static_cast<TokenId>(id));
    }
  }
  WEFT_ASSIGN(const bool add_bos, file.boolean_or("tokenizer.ggml.add_bos_token", default_add_bos));
  WEFT_ASSIGN(const bool add_eos, file.boolean_or("tokenizer.ggml.add_eos_token", false));
  if (add_bos && spec.bos >= 0) spec.prefix = {spec.bos};
  if (add_eos && eos >= 0) spec.suffix = {eos};
  return {};
}

void add_special_tokens(const Vocabulary& vocabulary, TokenizerSpec& spec) {
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const TokenType type = type_of(vocabulary, id);
    if (vocabulary.tokens[id].empty()) continue;
    if (type == kControl || type == kUnknown || type == kUserDefined) {
      spec.added.push_back({.id = static_cast<TokenId>(id),
                            .content = vocabulary.tokens[id],
                            .special = type != kUserDefined});
    }
  }
}

// Rows that fill up an embedding, as converters call them: not tokens.
void leave_out_padding(const Vocabulary& vocabulary, ModelSpec& model) {
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (type_of(vocabulary, id) != kUnused || vocabulary.tokens[id] != fmt::format("[PAD{}]", id))
      continue;
    model.present.resize(vocabulary.tokens.size(), true);
    model.present[id] = false;
  }
}

Result<TokenizerSpec> read_bpe(const GgufFile& file, Vocabulary vocabulary) {
  TokenizerSpec spec;
  spec.kind = "bpe";
  WEFT_ASSIGN(const std::string_view pre, file.text_or("tokenizer.ggml.pre", "gpt-2"));
  const WordPatterns* found = find_word_patterns(pre);
  if (found == nullptr) {
    return fail(ErrorCode::kUnsupported,
                "{}: the word pattern tokenizer.ggml.pre = \"{}\" is not known; give the model's "
                "tokenizer.json beside it",
                file.name(), pre);
  }
  for (const std::string_view pattern : found->patterns) {
    spec.pre_tokenizers.push_back(
        {.kind = PreTokenizerSpec::Kind::kSplit, .pattern = std::string(pattern)});
  }
  WEFT_ASSIGN(const bool prefix_space, file.boolean_or("tokenizer.ggml.add_space_prefix", false));
  spec.pre_tokenizers.push_back({.kind = PreTokenizerSpec::Kind::kByteLevel,
                                 .add_prefix_space = prefix_space,
                                 .use_regex = false});
  spec.decoders = {{.kind = DecoderSpec::Kind::kByteLevel}};
  spec.model.byte_level = true;
  spec.model.ignore_merges = found->ignore_merges;
  WEFT_TRY(read_ends(file, vocabulary, 11, 11, found->add_bos, spec));
  add_special_tokens(vocabulary, spec);
  std::unordered_map<std::string_view, TokenId> ids;
  ids.reserve(vocabulary.tokens.size());
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    ids.emplace(vocabulary.tokens[id], static_cast<TokenId>(id));
  }
  WEFT_ASSIGN(const auto merges, file.texts("tokenizer.ggml.merges"));
  spec.model.merges.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const std::size_t cut = merge.find(' ', 1);
    const auto left = ids.find(merge.substr(0, cut));
    const auto right = cut == std::string_view::npos ? ids.end() : ids.find(merge.substr(cut + 1));
    if (left == ids.end() || right == ids.end()) {
      return fail(ErrorCode::kCorrupt,
                  "{}: merge {} of tokenizer.ggml.merges (\"{}\") is not of two tokens of the "
                  "vocabulary",
                  file.name(), rank, merge);
    }
    spec.model.merges.emplace_back(left->second, right->second);
  }
  leave_out_padding(vocabulary, spec.model);
  spec.model.tokens = std::move(vocabulary.tokens);
  return spec;
}

Result<TokenizerSpec> read_sentencepiece(const GgufFile& file, Vocabulary vocabulary) {
  TokenizerSpec spec;
  spec.kind = "sentencepiece-bpe";
  WEFT_TRY(read_ends(file, vocabulary, 1, 2, true, spec));
  WEFT_ASSIGN(const std::vector<float> scores, file.numbers("tokenizer.ggml.scores"));
  spec.model.scores.assign(scores.begin(), scores.end());
  WEFT_ASSIGN(const bool prefix_space, file.boolean_or("tokenizer.ggml.add_space_prefix", true));
  if (prefix_space) {
    spec.normalizers.push_back({.kind = NormalizerSpec::Kind::kPrepend, .content = "\u2581"});
  }
  spec.normalizers.push_back(
      {.kind = NormalizerSpec::Kind::kReplace, .pattern = " ", .content = "\u2581"});
  spec.decoders = {{.kind = DecoderSpec::Kind::kReplace, .pattern = "\u2581", .content = " "},
                   {.kind = DecoderSpec::Kind::kByteFallback},
                   {.kind = DecoderSpec::Kind::kFuse}};
  if (prefix_space) {
    spec.decoders.push_back({.kind = DecoderSpec::Kind::kStrip, .content = " ", .start = 1});
  }
  add_special_tokens(vocabulary, spec);
  spec.model.by_score = true;
  spec.model.byte_fallback = true;
  spec.model.fuse_unk = true;
  spec.keeps_invalid_bytes = true;
  WEFT_ASSIGN(const std::int64_t unk, file.integer_or("tokenizer.ggml.unknown_token_id", 0));
  spec.model.unk = static_cast<TokenId>(unk);
  spec.model.unmergeable.resize(vocabulary.tokens.size());
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const TokenType type = type_of(vocabulary, id);
    spec.model.unmergeable[id] = type == kControl || type == kUnknown || type == kByte;
  }
  leave_out_padding(vocabulary, spec.model);
  spec.model.tokens = std::move(vocabulary.tokens);
  return spec;
}

// BERT's vocabulary, in which GGUF marks the beginnings of words by U+2581 instead of
// the continuations by "##".
Result<TokenizerSpec> read_word_piece(const GgufFile& file, Vocabulary vocabulary) {
  TokenizerSpec spec;
  spec.kind = "wordpiece";
  WEFT_TRY(read_ends(file, vocabulary, 101, 102, true, spec));
  const auto size = static_cast<std::int64_t>(vocabulary.tokens.size());
  // Files say "seperator" as well as "separator".
  WEFT_ASSIGN(const std::int64_t misspelt,
              file.integer_or("tokenizer.ggml.seperator_token_id", 102));
  WEFT_ASSIGN(const std::int64_t separator,
              file.integer_or("tokenizer.ggml.separator_token_id", misspelt));
  WEFT_ASSIGN(const std::int64_t cls, file.integer_or("tokenizer.ggml.cls_token_id", spec.bos));
  WEFT_ASSIGN(const std::int64_t unk, file.integer_or("tokenizer.ggml.unknown_token_id", 100));
  for (const std::int64_t id : {separator, cls, unk}) {
    if (id < 0 || id >= size) {
      return fail(ErrorCode::kOutOfRange, "{}: the special token {} is beyond the {} tokens",
                  file.name(), id, size);
    }
  }
  spec.bos = static_cast<TokenId>(cls);
  spec.prefix = {spec.bos};
  spec.suffix = {static_cast<TokenId>(separator)};
  spec.eos = spec.suffix;
  add_special_tokens(vocabulary, spec);
  spec.model.kind = ModelKind::kWordPiece;
  spec.model.unk = static_cast<TokenId>(unk);
  spec.model.continuing_prefix = "##";
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    std::string& token = vocabulary.tokens[id];
    if (token.starts_with("\u2581")) {
      token.erase(0, std::string_view("\u2581").size());
    } else if (type_of(vocabulary, id) == kNormal) {
      token.insert(0, "##");
    }
  }
  spec.model.tokens = std::move(vocabulary.tokens);
  spec.normalizers = {{.kind = NormalizerSpec::Kind::kBert}};
  spec.pre_tokenizers = {{.kind = PreTokenizerSpec::Kind::kBert}};
  spec.decoders = {{.kind = DecoderSpec::Kind::kWordPiece, .content = "##"}};
  return spec;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> tokenizer_from_gguf(const GgufFile& file) {
  WEFT_ASSIGN(const std::string_view model, file.text("tokenizer.ggml.model"));
  WEFT_ASSIGN(Vocabulary vocabulary, read_vocabulary(file));
  if (model == "gpt2") {
    WEFT_ASSIGN(TokenizerSpec spec, read_bpe(file, std::move(vocabulary)));
    return make_tokenizer(std::move(spec), file.name());
  }
  if (model == "llama") {
    WEFT_ASSIGN(TokenizerSpec spec, read_sentencepiece(file, std::move(vocabulary)));
    return make_tokenizer(std::move(spec), file.name());
  }
  if (model == "bert") {
    WEFT_ASSIGN(TokenizerSpec spec, read_word_piece(file, std::move(vocabulary)));
    return make_tokenizer(std::move(spec), file.name());
  }
  return fail(ErrorCode::kUnsupported,
              "{}: tokenizer.ggml.model = \"{}\" is not read; gpt2, llama and bert are",
              file.name(), model);
}

}  // namespace weft::model
