// Reads Hugging Face's tokenizer.json into a TokenizerSpec. What is not understood
// is refused by name: a step left out would give other ids.
#include <algorithm>
#include <unordered_map>

#include "weft/base/json.h"
#include "weft/model/base64.h"
#include "weft/model/special_names.h"
#include "weft/model/tokenizer_spec.h"

namespace weft::model {
namespace {

constexpr std::int64_t kLargestId = 16'000'000;

std::unexpected<Error> unsupported(std::string_view what, std::string_view type) {
  return fail(ErrorCode::kUnsupported, "the {} \"{}\" is not read", what, type);
}

const Json* member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<const Json::array_t*> array_member(const Json& object, std::string_view key) {
  const Json* value = member(object, key);
  if (value == nullptr || !value->is_array()) {
    return fail(ErrorCode::kInvalidArgument, "\"{}\" must be an array", key);
  }
  return value->get_ptr<const Json::array_t*>();
}

// {"String": ...} or {"Regex": ...}.
Status read_pattern(const Json& step, std::string& pattern, bool& is_regex) {
  const Json* value = member(step, "pattern");
  if (value == nullptr) return fail(ErrorCode::kInvalidArgument, "\"pattern\" is missing");
  is_regex = member(*value, "Regex") != nullptr;
  WEFT_ASSIGN(pattern, json_field<std::string>(*value, is_regex ? "Regex" : "String"));
  return {};
}

Result<PrependScheme> read_prepend(const Json& step) {
  WEFT_ASSIGN(const bool legacy, json_field_or<bool>(step, "add_prefix_space", true));
  WEFT_ASSIGN(const std::string scheme,
              json_field_or<std::string>(step, "prepend_scheme", legacy ? "always" : "never"));
  if (scheme == "always") return PrependScheme::kAlways;
  if (scheme == "first") return PrependScheme::kFirst;
  if (scheme == "never") return PrependScheme::kNever;
  return unsupported("prepend_scheme", scheme);
}

Result<SplitBehavior> read_behavior(const Json& step) {
  WEFT_ASSIGN(const std::string name, json_field_or<std::string>(step, "behavior", "Isolated"));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return unsupported("split behavior", name);
}

// Steps of a Sequence come flattened; `read_one` fills the output for one step.
template <class ReadOne>
Status each_step(const Json& step, std::string_view list_name, int depth, ReadOne read_one) {
  WEFT_ASSIGN(const std::string type, json_field<std::string>(step, "type"));
  if (type != "Sequence") return read_one(step, type);
  if (depth > 8) return fail(ErrorCode::kInvalidArgument, "sequences nested deeper than 8 levels");
  WEFT_ASSIGN(const auto* steps, array_member(step, list_name));
  for (const Json& inner : *steps) WEFT_TRY(each_step(inner, list_name, depth + 1, read_one));
  return {};
}

Status read_normalizer(const Json& step, const std::string& type, TokenizerSpec& spec) {
  using Kind = NormalizerSpec::Kind;
  NormalizerSpec made;
  if (type == "NFC") {
    made.kind = Kind::kNfc;
  } else if (type == "NFD") {
    made.kind = Kind::kNfd;
  } else if (type == "NFKC") {
    made.kind = Kind::kNfkc;
  } else if (type == "NFKD") {
    made.kind = Kind::kNfkd;
  } else if (type == "Lowercase") {
    made.kind = Kind::kLowercase;
  } else if (type == "StripAccents") {
    made.kind = Kind::kStripAccents;
  } else if (type == "Nmt") {
    made.kind = Kind::kNmt;
  } else if (type == "Prepend") {
    made.kind = Kind::kPrepend;
    WEFT_ASSIGN(made.content, json_field<std::string>(step, "prepend"));
  } else if (type == "Replace") {
    made.kind = Kind::kReplace;
    WEFT_TRY(read_pattern(step, made.pattern, made.is_regex));
    WEFT_ASSIGN(made.content, json_field<std::string>(step, "content"));
  } else if (type == "Strip") {
    made.kind = Kind::kStrip;
    WEFT_ASSIGN(made.left, json_field_or<bool>(step, "strip_left", true));
    WEFT_ASSIGN(made.right, json_field_or<bool>(step, "strip_right", true));
  } else if (type == "BertNormalizer") {
    made.kind = Kind::kBert;
    WEFT_ASSIGN(made.clean_text, json_field_or<bool>(step, "clean_text", true));
    WEFT_ASSIGN(made.chinese_chars, json_field_or<bool>(step, "handle_chinese_chars", true));
    WEFT_ASSIGN(made.lowercase, json_field_or<bool>(step, "lowercase", true));
    if (member(step, "strip_accents") != nullptr) {
      WEFT_ASSIGN(made.strip_accents, json_field<bool>(step, "strip_accents"));
    }
  } else if (type == "Precompiled") {
    made.kind = Kind::kPrecompiled;
    WEFT_ASSIGN(const std::string text, json_field<std::string>(step, "precompiled_charsmap"));
    auto blob = base64_decode(text);
    if (!blob) {
      return fail(ErrorCode::kCorrupt, "\"precompiled_charsmap\" is not base64");
    }
    made.content = std::move(*blob);
  } else {
    return unsupported("normalizer", type);
  }
  spec.normalizers.push_back(std::move(made));
  return {};
}

Status read_pre_tokenizer(const Json& step, const std::string& type, TokenizerSpec& spec) {
  using Kind = PreTokenizerSpec::Kind;
  PreTokenizerSpec made;
  if (type == "ByteLevel") {
    if (spec.model.byte_level) return unsupported("pre_tokenizer", "second ByteLevel");
    made.kind = Kind::kByteLevel;
    WEFT_ASSIGN(made.add_prefix_space, json_field_or<bool>(step, "add_prefix_space", true));
    WEFT_ASSIGN(made.use_regex, json_field_or<bool>(step, "use_regex", true));
    spec.model.byte_level = true;
  } else if (type == "Split") {
    made.kind = Kind::kSplit;
    WEFT_TRY(read_pattern(step, made.pattern, made.is_regex));
    WEFT_ASSIGN(made.behavior, read_behavior(step));
    WEFT_ASSIGN(made.invert, json_field_or<bool>(step, "invert", false));
  } else if (type == "CharDelimiterSplit") {
    made.kind = Kind::kSplit;
    made.is_regex = false;
    made.behavior = SplitBehavior::kRemoved;
    WEFT_ASSIGN(made.pattern, json_field<std::string>(step, "delimiter"));
  } else if (type == "Digits") {
    made.kind = Kind::kDigits;
    WEFT_ASSIGN(made.individual_digits, json_field_or<bool>(step, "individual_digits", false));
  } else if (type == "Punctuation") {
    made.kind = Kind::kPunctuation;
    WEFT_ASSIGN(made.behavior, read_behavior(step));
  } else if (type == "Whitespace") {
    made.kind = Kind::kWhitespace;
  } else if (type == "WhitespaceSplit") {
    made.kind = Kind::kWhitespaceSplit;
  } else if (type == "BertPreTokenizer") {
    made.kind = Kind::kBert;
  } else if (type == "Metaspace") {
    made.kind = Kind::kMetaspace;
    WEFT_ASSIGN(made.content, json_field_or<std::string>(step, "replacement", "\u2581"));
    WEFT_ASSIGN(made.prepend, read_prepend(step));
    WEFT_ASSIGN(made.split, json_field_or<bool>(step, "split", true));
  } else {
    return unsupported("pre_tokenizer", type);
  }
  spec.pre_tokenizers.push_back(std::move(made));
  return {};
}

Status read_decoder(const Json& step, const std::string& type, TokenizerSpec& spec) {
  using Kind = DecoderSpec::Kind;
  DecoderSpec made;
  if (type == "ByteLevel") {
    made.kind = Kind::kByteLevel;
  } else if (type == "ByteFallback") {
    made.kind = Kind::kByteFallback;
  } else if (type == "Fuse") {
    made.kind = Kind::kFuse;
  } else if (type == "Replace") {
    made.kind = Kind::kReplace;
    bool is_regex = false;
    WEFT_TRY(read_pattern(step, made.pattern, is_regex));
    if (is_regex) return unsupported("decoder", "Replace with a Regex");
    WEFT_ASSIGN(made.content, json_field<std::string>(step, "content"));
  } else if (type == "Strip") {
    made.kind = Kind::kStrip;
    WEFT_ASSIGN(made.content, json_field<std::string>(step, "content"));
    WEFT_ASSIGN(made.start, json_field_or<std::int64_t>(step, "start", 0));
    WEFT_ASSIGN(made.stop, json_field_or<std::int64_t>(step, "stop", 0));
  } else if (type == "Metaspace") {
    made.kind = Kind::kMetaspace;
    WEFT_ASSIGN(made.content, json_field_or<std::string>(step, "replacement", "\u2581"));
    WEFT_ASSIGN(made.prepend, read_prepend(step));
  } else if (type == "WordPiece") {
    made.kind = Kind::kWordPiece;
    WEFT_ASSIGN(made.content, json_field_or<std::string>(step, "prefix", "##"));
    WEFT_ASSIGN(made.cleanup, json_field_or<bool>(step, "cleanup", true));
  } else {
    return unsupported("decoder", type);
  }
  spec.decoders.push_back(std::move(made));
  return {};
}

Result<TokenId> to_id(const Json& value, std::string_view what) {
  if (value.is_number_integer()) {
    const auto id = value.get<std::int64_t>();
    if (id >= 0 && id < kLargestId) return static_cast<TokenId>(id);
  }
  return fail(ErrorCode::kOutOfRange, "the id of {} must be an integer from 0 to {}", what,
              kLargestId - 1);
}

Status read_template(const Json& step, TokenizerSpec& spec) {
  WEFT_ASSIGN(const auto* pieces, array_member(step, "single"));
  const Json* names = member(step, "special_tokens");
  bool after_text = false;
  for (const Json& piece : *pieces) {
    if (member(piece, "Sequence") != nullptr) {
      if (after_text) return unsupported("post_processor", "template that repeats the text");
      after_text = true;
      continue;
    }
    const Json* special = member(piece, "SpecialToken");
    if (special == nullptr) {
      return fail(ErrorCode::kInvalidArgument,
                  "a piece of \"single\" is neither a Sequence nor a SpecialToken");
    }
    WEFT_ASSIGN(const std::string name, json_field<std::string>(*special, "id"));
    const Json* entry = names == nullptr ? nullptr : member(*names, name);
    if (entry == nullptr) {
      return fail(ErrorCode::kInvalidArgument, "\"special_tokens\" lacks \"{}\"", name);
    }
    WEFT_ASSIGN(const auto* ids, array_member(*entry, "ids"));
    for (const Json& id : *ids) {
      WEFT_ASSIGN(const TokenId token, to_id(id, name));
      (after_text ? spec.suffix : spec.prefix).push_back(token);
    }
  }
  return {};
}

Status read_post_processor(const Json& step, const std::string& type, TokenizerSpec& spec) {
  if (type == "ByteLevel") return {};  // only moves offsets
  if (type == "TemplateProcessing") return read_template(step, spec);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    for (const char* name : {"cls", "sep"}) {
      WEFT_ASSIGN(const auto* pair, array_member(step, name));
      if (pair->size() != 2) {
        return fail(ErrorCode::kInvalidArgument, "\"{}\" must be [token, id]", name);
      }
      WEFT_ASSIGN(const TokenId id, to_id((*pair)[1], name));
      (std::string_view(name) == "cls" ? spec.prefix : spec.suffix).push_back(id);
    }
    return {};
  }
  return unsupported("post_processor", type);
}

using Ids = std::unordered_map<std::string_view, TokenId>;

// {"token": id, ...}; `ids` views the strings of `spec.model.tokens`.
Status read_vocabulary(const Json& model, ModelSpec& spec, Ids& ids) {
  const Json* vocabulary = member(model, "vocab");
  if (vocabulary == nullptr || !vocabulary->is_object()) {
    return fail(ErrorCode::kInvalidArgument, "\"vocab\" must be an object of token and id");
  }
  const auto& entries = *vocabulary->get_ptr<const Json::object_t*>();
  TokenId largest = -1;
  for (const auto& [text, value] : entries) {
    WEFT_ASSIGN(const TokenId id, to_id(value, text));
    largest = std::max(largest, id);
  }
  // An id far beyond the number of tokens would only cost memory.
  if (largest >= 0 && static_cast<std::size_t>(largest) > 4 * entries.size() + 65536) {
    return fail(ErrorCode::kOutOfRange, "the largest id is {} for {} tokens", largest,
                entries.size());
  }
  spec.tokens.resize(static_cast<std::size_t>(largest) + 1);
  spec.present.assign(spec.tokens.size(), false);
  for (const auto& [text, value] : entries) {
    const auto id = value.get<TokenId>();
    if (spec.present[id]) {
      return fail(ErrorCode::kInvalidArgument, "\"{}\" and \"{}\" have the same id {}",
                  spec.tokens[id], text, id);
    }
    spec.tokens[id] = text;
    spec.present[id] = true;
  }
  ids.reserve(entries.size());
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.present[id]) ids.emplace(spec.tokens[id], static_cast<TokenId>(id));
  }
  return {};
}

Status read_unknown(const Json& model, const Ids& ids, ModelSpec& spec) {
  if (member(model, "unk_token") == nullptr) return {};
  WEFT_ASSIGN(const std::string name, json_field<std::string>(model, "unk_token"));
  const auto found = ids.find(name);
  if (found == ids.end()) {
    return fail(ErrorCode::kInvalidArgument, "\"unk_token\" \"{}\" is not in the vocabulary", name);
  }
  spec.unk = found->second;
  return {};
}

Status read_bpe(const Json& model, ModelSpec& spec) {
  if (const Json* dropout = member(model, "dropout")) {
    if (!dropout->is_number() || dropout->get<double>() != 0)
      return unsupported("model", "dropout");
  }
  Ids ids;
  WEFT_TRY(read_vocabulary(model, spec, ids));
  WEFT_TRY(read_unknown(model, ids, spec));
  WEFT_ASSIGN(spec.fuse_unk, json_field_or<bool>(model, "fuse_unk", false));
  WEFT_ASSIGN(spec.byte_fallback, json_field_or<bool>(model, "byte_fallback", false));
  WEFT_ASSIGN(spec.ignore_merges, json_field_or<bool>(model, "ignore_merges", false));
  WEFT_ASSIGN(spec.end_of_word, json_field_or<std::string>(model, "end_of_word_suffix", ""));
  WEFT_ASSIGN(spec.continuing_prefix,
              json_field_or<std::string>(model, "continuing_subword_prefix", ""));
  if (!spec.continuing_prefix.empty()) return unsupported("model", "continuing_subword_prefix");
  WEFT_ASSIGN(const auto* merges, array_member(model, "merges"));
  spec.merges.reserve(merges->size());
  for (std::size_t rank = 0; rank < merges->size(); ++rank) {
    const Json& merge = (*merges)[rank];
    std::string_view left, right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = *merge[0].get_ptr<const std::string*>();
      right = *merge[1].get_ptr<const std::string*>();
    } else if (merge.is_string()) {
      const std::string_view text = *merge.get_ptr<const std::string*>();
      const std::size_t cut = text.find(' ');
      if (cut != std::string_view::npos) {
        left = text.substr(0, cut);
        right = text.substr(cut + 1);
      }
    }
    const auto left_id = ids.find(left);
    const auto right_id = ids.find(right);
    if (left_id == ids.end() || right_id == ids.end()) {
      return fail(ErrorCode::kInvalidArgument,
                  "merge {} ({}) is not of two tokens of the vocabulary", rank, dump_json(merge));
    }
    spec.merges.emplace_back(left_id->second, right_id->second);
  }
  return {};
}

Status read_unigram(const Json& model, ModelSpec& spec) {
  spec.kind = ModelKind::kUnigram;
  WEFT_ASSIGN(const auto* vocabulary, array_member(model, "vocab"));
  for (std::size_t id = 0; id < vocabulary->size(); ++id) {
    const Json& entry = (*vocabulary)[id];
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      return fail(ErrorCode::kInvalidArgument, "entry {} of \"vocab\" must be [token, score]", id);
    }
    spec.tokens.push_back(entry[0].get<std::string>());
    spec.scores.push_back(entry[1].get<double>());
  }
  WEFT_ASSIGN(spec.byte_fallback, json_field_or<bool>(model, "byte_fallback", false));
  WEFT_ASSIGN(const std::int64_t unk, json_field_or<std::int64_t>(model, "unk_id", -1));
  if (unk < -1 || unk >= static_cast<std::int64_t>(spec.tokens.size())) {
    return fail(ErrorCode::kOutOfRange, "\"unk_id\" is {} for {} tokens", unk, spec.tokens.size());
  }
  spec.unk = static_cast<TokenId>(unk);
  return {};
}

Status read_model(const Json& json, TokenizerSpec& spec) {
  const Json* model = member(json, "model");
  if (model == nullptr) return fail(ErrorCode::kInvalidArgument, "\"model\" is missing");
  // Files of the first versions leave the type out.
  WEFT_ASSIGN(const std::string type,
              json_field_or<std::string>(*model, "type", model->contains("merges") ? "BPE" : ""));
  if (type == "BPE") {
    spec.kind = "bpe";
    return read_bpe(*model, spec.model);
  }
  if (type == "Unigram") {
    spec.kind = "unigram";
    return read_unigram(*model, spec.model);
  }
  if (type == "WordPiece") {
    spec.kind = "wordpiece";
    spec.model.kind = ModelKind::kWordPiece;
    Ids ids;
    WEFT_TRY(read_vocabulary(*model, spec.model, ids));
    WEFT_TRY(read_unknown(*model, ids, spec.model));
    WEFT_ASSIGN(spec.model.continuing_prefix,
                json_field_or<std::string>(*model, "continuing_subword_prefix", "##"));
    WEFT_ASSIGN(spec.model.max_word_characters,
                json_field_or<std::int64_t>(*model, "max_input_chars_per_word", 100));
    return {};
  }
  return unsupported("model", type);
}

Status read_added(const Json& json, TokenizerSpec& spec) {
  if (member(json, "added_tokens") == nullptr) return {};
  WEFT_ASSIGN(const auto* added, array_member(json, "added_tokens"));
  for (const Json& entry : *added) {
    AddedTokenSpec token;
    WEFT_ASSIGN(token.content, json_field<std::string>(entry, "content"));
    const Json* id = member(entry, "id");
    if (id == nullptr) {
      return fail(ErrorCode::kInvalidArgument, "the added token \"{}\" has no id", token.content);
    }
    WEFT_ASSIGN(token.id, to_id(*id, token.content));
    if (static_cast<std::size_t>(token.id) >
        4 * (spec.model.tokens.size() + added->size()) + 65536) {
      return fail(ErrorCode::kOutOfRange, "the added token \"{}\" has the id {} for {} tokens",
                  token.content, token.id, spec.model.tokens.size());
    }
    WEFT_ASSIGN(token.single_word, json_field_or<bool>(entry, "single_word", false));
    WEFT_ASSIGN(token.lstrip, json_field_or<bool>(entry, "lstrip", false));
    WEFT_ASSIGN(token.rstrip, json_field_or<bool>(entry, "rstrip", false));
    WEFT_ASSIGN(token.special, json_field_or<bool>(entry, "special", false));
    WEFT_ASSIGN(token.normalized, json_field_or<bool>(entry, "normalized", !token.special));
    spec.added.push_back(std::move(token));
  }
  return {};
}

// The file does not say which token begins and ends a text; the template and the
// publishers' names do.
void guess_ends(TokenizerSpec& spec) {
  if (!spec.prefix.empty()) spec.bos = spec.prefix.front();
  for (const AddedTokenSpec& token : spec.added) {
    if (spec.bos < 0 && begins_a_text(token.content)) spec.bos = token.id;
    if (ends_a_reply(token.content)) spec.eos.push_back(token.id);
  }
}

Result<TokenizerSpec> read(const Json& json) {
  TokenizerSpec spec;
  if (!json.is_object()) return fail(ErrorCode::kInvalidArgument, "not a JSON object");
  WEFT_TRY(read_model(json, spec));
  const auto section = [&](std::string_view name, std::string_view list_name,
                           auto read_one) -> Status {
    const Json* value = member(json, name);
    if (value == nullptr) return {};
    auto status = each_step(*value, list_name, 0, [&](const Json& step, const std::string& type) {
      return read_one(step, type, spec);
    });
    if (!status) return std::unexpected(status.error().in(name));
    return {};
  };
  WEFT_TRY(section("normalizer", "normalizers", read_normalizer));
  WEFT_TRY(section("pre_tokenizer", "pretokenizers", read_pre_tokenizer));
  WEFT_TRY(section("post_processor", "processors", read_post_processor));
  WEFT_TRY(section("decoder", "decoders", read_decoder));
  WEFT_TRY(read_added(json, spec));
  guess_ends(spec);
  return spec;
}

}  // namespace

Result<TokenizerSpec> spec_from_json(const Json& json, std::string_view where) {
  auto spec = read(json);
  if (!spec) return std::unexpected(spec.error().in(where));
  return spec;
}

Result<std::shared_ptr<const Tokenizer>> tokenizer_from_json(std::string_view text,
                                                             std::string_view file) {
  WEFT_ASSIGN(TokenizerSpec spec, spec_from_text(text, file));
  return make_tokenizer(std::move(spec), file);
}

Result<TokenizerSpec> spec_from_text(std::string_view text, std::string_view where) {
  WEFT_ASSIGN(const Json json, parse_json(text, where));
  return spec_from_json(json, where);
}

}  // namespace weft::model
