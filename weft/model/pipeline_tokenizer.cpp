// The tokenizer that runs a TokenizerSpec: added tokens, normaliser, pre-tokenizer,
// model, post-processor; and back.
#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <variant>

#include "weft/base/json.h"
#include "weft/model/added_tokens.h"
#include "weft/model/bpe.h"
#include "weft/model/normalizer.h"
#include "weft/model/pre_tokenizer.h"
#include "weft/model/token_decoder.h"
#include "weft/model/tokenizer_spec.h"
#include "weft/model/unicode_text.h"
#include "weft/model/unigram.h"
#include "weft/model/word_piece.h"

namespace weft::model {
namespace {

using WordModel = std::variant<std::monostate, BpeModel, UnigramModel, WordPieceModel>;

// Workspaces for threads that encode at the same time; a call borrows one.
class WorkspacePool {
 public:
  std::unique_ptr<BpeWorkspace> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto workspace = std::move(free_.back());
        free_.pop_back();
        return workspace;
      }
    }
    return std::make_unique<BpeWorkspace>();
  }
  void give_back(std::unique_ptr<BpeWorkspace> workspace) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<BpeWorkspace>> free_;
};

class PipelineTokenizer final : public Tokenizer {
 public:
  static Result<std::shared_ptr<const Tokenizer>> make(TokenizerSpec spec, std::string_view where);

  std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const override;
  std::string token_bytes(TokenId id) const override;
  void decode_next(TokenId id, bool skip_special, DecodeState& state,
                   std::string& text) const override;
  void decode_end(DecodeState& state, std::string& text) const override {
    decoder_.end(state, text);
  }
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(texts_.size()); }
  TokenId bos() const override { return spec_.bos; }
  const std::vector<TokenId>& eos() const override { return spec_.eos; }
  const std::vector<SpecialToken>& special_tokens() const override { return specials_; }
  TokenId find_token(std::string_view text) const override;
  std::string kind() const override { return spec_.kind; }
  Result<Json> to_tokenizer_json() const override { return spec_to_json(spec_); }

 private:
  // What is known of an id besides its text.
  enum class IdKind : std::uint8_t { kAbsent, kPlain, kAdded, kSpecial };

  Status index(std::string_view where);
  void encode_section(std::string_view text, bool first, bool parse_special,
                      BpeWorkspace& workspace, std::vector<TokenId>& ids) const;

  TokenizerSpec spec_;
  std::vector<std::string> texts_;  // by id, added tokens included
  std::vector<IdKind> kinds_;
  BpeModel::Vocabulary by_text_;                                 // views into texts_
  std::unordered_map<std::string_view, TokenId> added_by_text_;  // views into specials_
  std::vector<SpecialToken> specials_;
  AddedTokens raw_added_, normalized_added_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  WordModel model_;
  TokenDecoder decoder_;
  mutable WorkspacePool workspaces_;
};

constexpr std::size_t kLargestVocabulary = 16'000'000;

Status PipelineTokenizer::index(std::string_view where) {
  const std::size_t model_size = spec_.model.tokens.size();
  if (!spec_.model.present.empty() && spec_.model.present.size() != model_size) {
    return fail(ErrorCode::kInternal, "{}: {} presence bits for {} tokens", where,
                spec_.model.present.size(), model_size);
  }
  std::size_t size = model_size;
  for (const AddedTokenSpec& added : spec_.added) {
    if (added.id < 0 || static_cast<std::size_t>(added.id) >= kLargestVocabulary) {
      return fail(ErrorCode::kOutOfRange, "{}: added token \"{}\" has the id {}", where,
                  added.content, added.id);
    }
    size = std::max(size, static_cast<std::size_t>(added.id) + 1);
  }
  texts_ = spec_.model.tokens;
  texts_.resize(size);
  kinds_.assign(size, IdKind::kAbsent);
  for (std::size_t id = 0; id < model_size; ++id) {
    if (spec_.model.present.empty() || spec_.model.present[id]) kinds_[id] = IdKind::kPlain;
  }
  by_text_.reserve(model_size);
  for (std::size_t id = 0; id < model_size; ++id) {
    if (kinds_[id] == IdKind::kPlain) by_text_.emplace(texts_[id], static_cast<TokenId>(id));
  }
  std::ranges::sort(spec_.added, [](const AddedTokenSpec& a, const AddedTokenSpec& b) {
    return a.id != b.id ? a.id < b.id : a.content < b.content;
  });
  for (const AddedTokenSpec& added : spec_.added) {
    kinds_[added.id] = added.special ? IdKind::kSpecial : IdKind::kAdded;
    // by_text_ views texts_: a token of the model keeps its own text there.
    if (static_cast<std::size_t>(added.id) >= model_size) texts_[added.id] = added.content;
    specials_.push_back({added.id, added.content, added.special});
  }
  for (const SpecialToken& special : specials_) added_by_text_.emplace(special.text, special.id);
  const auto in_range = [&](TokenId id) {
    return id >= 0 && static_cast<std::size_t>(id) < texts_.size();
  };
  const auto check = [&](TokenId id, std::string_view what) -> Status {
    if (in_range(id)) return {};
    return fail(ErrorCode::kOutOfRange, "{}: the {} token {} is not in the vocabulary of {}", where,
                what, id, texts_.size());
  };
  for (const TokenId id : spec_.prefix) WEFT_TRY(check(id, "prefix"));
  for (const TokenId id : spec_.suffix) WEFT_TRY(check(id, "suffix"));
  for (const TokenId id : spec_.eos) WEFT_TRY(check(id, "end"));
  if (spec_.bos >= 0) WEFT_TRY(check(spec_.bos, "begin"));
  if (spec_.model.unk >= 0) WEFT_TRY(check(spec_.model.unk, "unknown"));
  return {};
}

Result<std::shared_ptr<const Tokenizer>> PipelineTokenizer::make(TokenizerSpec spec,
                                                                 std::string_view where) {
  auto made = std::make_shared<PipelineTokenizer>();
  made->spec_ = std::move(spec);
  const ModelSpec& model = made->spec_.model;
  if (model.tokens.size() > kLargestVocabulary) {
    return fail(ErrorCode::kOutOfRange, "{}: {} tokens; at most {} are read", where,
                model.tokens.size(), kLargestVocabulary);
  }
  WEFT_TRY(made->index(where));
  std::vector<std::string> user_defined;
  for (const TokenId id : model.user_defined) user_defined.push_back(model.tokens[id]);
  WEFT_ASSIGN(made->normalizer_,
              Normalizer::make(made->spec_.normalizers, std::move(user_defined), where));
  WEFT_ASSIGN(made->pre_tokenizer_, PreTokenizer::make(made->spec_.pre_tokenizers, where));
  WEFT_ASSIGN(made->decoder_, TokenDecoder::make(made->spec_.decoders, where));
  switch (model.kind) {
    case ModelKind::kBpe: {
      WEFT_ASSIGN(BpeModel bpe, BpeModel::make(model, made->by_text_, where));
      made->model_ = std::move(bpe);
      break;
    }
    case ModelKind::kUnigram: {
      WEFT_ASSIGN(UnigramModel unigram, UnigramModel::make(model, made->by_text_, where));
      made->model_ = std::move(unigram);
      break;
    }
    case ModelKind::kWordPiece:
      made->model_ = WordPieceModel::make(model);
      break;
  }
  std::vector<AddedTokenSpec> raw, normalized;
  std::vector<std::string> raw_contents, normalized_contents;
  for (const AddedTokenSpec& added : made->spec_.added) {
    if (added.content.empty()) continue;
    if (added.normalized && !made->normalizer_.empty()) {
      normalized.push_back(added);
      normalized_contents.push_back(made->normalizer_.apply(added.content));
    } else {
      raw.push_back(added);
      raw_contents.push_back(added.content);
    }
  }
  made->raw_added_ = AddedTokens(std::move(raw), raw_contents);
  made->normalized_added_ = AddedTokens(std::move(normalized), normalized_contents);
  return made;
}

// Hands each word to the model.
class ModelSink final : public WordSink {
 public:
  ModelSink(const WordModel& model, BpeWorkspace& workspace, std::vector<TokenId>& ids)
      : model_(model), workspace_(workspace), ids_(ids) {}
  void word(std::string_view word) override {
    if (const auto* bpe = std::get_if<BpeModel>(&model_)) {
      bpe->encode(word, workspace_, ids_);
    } else if (const auto* unigram = std::get_if<UnigramModel>(&model_)) {
      unigram->encode(word, ids_);
    } else {
      std::get<WordPieceModel>(model_).encode(word, ids_);
    }
  }

 private:
  const WordModel& model_;
  BpeWorkspace& workspace_;
  std::vector<TokenId>& ids_;
};

void PipelineTokenizer::encode_section(std::string_view text, bool first, bool parse_special,
                                       BpeWorkspace& workspace, std::vector<TokenId>& ids) const {
  std::string normalized;
  if (!normalizer_.empty()) {
    normalized = normalizer_.apply(text);
    text = normalized;
  }
  ModelSink sink(model_, workspace, ids);
  if (normalized_added_.empty()) {
    pre_tokenizer_.split(text, first, sink);
    return;
  }
  normalized_added_.split(
      text, parse_special,
      [&](std::size_t begin, std::size_t end) {
        pre_tokenizer_.split(text.substr(begin, end - begin), first && begin == 0, sink);
      },
      [&](TokenId id) { ids.push_back(id); });
}

std::vector<TokenId> PipelineTokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + 8);
  if (options.add_special) ids = spec_.prefix;
  std::string valid;
  if (!spec_.keeps_invalid_bytes && !is_valid_utf8(text)) {
    valid = replace_invalid_utf8(text);
    text = valid;
  }
  std::unique_ptr<BpeWorkspace> workspace = workspaces_.take();
  raw_added_.split(
      text, options.parse_special,
      [&](std::size_t begin, std::size_t end) {
        encode_section(text.substr(begin, end - begin), begin == 0, options.parse_special,
                       *workspace, ids);
      },
      [&](TokenId id) { ids.push_back(id); });
  workspaces_.give_back(std::move(workspace));
  if (options.add_special) ids.insert(ids.end(), spec_.suffix.begin(), spec_.suffix.end());
  return ids;
}

std::string PipelineTokenizer::token_bytes(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= texts_.size()) return {};
  switch (kinds_[id]) {
    case IdKind::kAbsent:
      return {};
    case IdKind::kAdded:
    case IdKind::kSpecial:
      return texts_[id];
    case IdKind::kPlain:
      break;
  }
  return decoder_.bytes(texts_[id]);
}

void PipelineTokenizer::decode_next(TokenId id, bool skip_special, DecodeState& state,
                                    std::string& text) const {
  if (id < 0 || static_cast<std::size_t>(id) >= texts_.size()) return;
  const IdKind kind = kinds_[id];
  if (kind == IdKind::kAbsent || (kind == IdKind::kSpecial && skip_special)) return;
  decoder_.next(texts_[id], id == spec_.model.unk, state, text);
}

TokenId PipelineTokenizer::find_token(std::string_view text) const {
  if (const auto found = added_by_text_.find(text); found != added_by_text_.end()) {
    return found->second;
  }
  if (const auto found = by_text_.find(text); found != by_text_.end()) return found->second;
  if (spec_.model.byte_level) {
    const std::string spelled = bytes_to_alphabet(text);
    if (const auto found = by_text_.find(spelled); found != by_text_.end()) return found->second;
  }
  return -1;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> make_tokenizer(TokenizerSpec spec,
                                                        std::string_view where) {
  return PipelineTokenizer::make(std::move(spec), where);
}

}  // namespace weft::model
