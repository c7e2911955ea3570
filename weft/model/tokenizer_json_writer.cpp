// Writes a TokenizerSpec as a tokenizer.json that `tokenizers` loads.
#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "weft/base/json.h"
#include "weft/model/base64.h"
#include "weft/model/tokenizer_spec.h"

namespace weft::model {
namespace {

constexpr std::string_view kSpaceSymbol = "\u2581";

// Appends without nlohmann's search for the key.
void put(Json& object, std::string_view key, Json value) {
  std::vector<std::pair<const std::string, Json>>& members = object.get_ref<Json::object_t&>();
  members.emplace_back(std::string(key), std::move(value));
}

Json pattern_json(const std::string& pattern, bool is_regex) {
  return Json{{is_regex ? "Regex" : "String", pattern}};
}

std::string_view prepend_name(PrependScheme scheme) {
  switch (scheme) {
    case PrependScheme::kAlways:
      return "always";
    case PrependScheme::kFirst:
      return "first";
    case PrependScheme::kNever:
      return "never";
  }
  std::unreachable();
}

std::string_view behavior_name(SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      return "Removed";
    case SplitBehavior::kIsolated:
      return "Isolated";
    case SplitBehavior::kMergedWithPrevious:
      return "MergedWithPrevious";
    case SplitBehavior::kMergedWithNext:
      return "MergedWithNext";
    case SplitBehavior::kContiguous:
      return "Contiguous";
  }
  std::unreachable();
}

// A list of steps as one step, a Sequence, or null.
Json sequence(std::vector<Json> steps, std::string_view list_name) {
  if (steps.empty()) return nullptr;
  if (steps.size() == 1) return std::move(steps.front());
  Json json{{"type", "Sequence"}};
  put(json, list_name, Json(std::move(steps)));
  return json;
}

// sentencepiece's normaliser as the steps that transformers' converters use.
void sentencepiece_steps(const NormalizerSpec& spec, std::vector<Json>& steps) {
  if (!spec.content.empty()) {
    steps.push_back(
        {{"type", "Precompiled"}, {"precompiled_charsmap", base64_encode(spec.content)}});
  }
  if (spec.remove_extra_spaces) {
    steps.push_back(
        {{"type", "Replace"}, {"pattern", pattern_json("\\A +| +\\z", true)}, {"content", ""}});
    steps.push_back(
        {{"type", "Replace"}, {"pattern", pattern_json(" {2,}", true)}, {"content", " "}});
  }
  if (spec.add_dummy_prefix) steps.push_back({{"type", "Prepend"}, {"prepend", kSpaceSymbol}});
  steps.push_back(
      {{"type", "Replace"}, {"pattern", pattern_json(" ", false)}, {"content", kSpaceSymbol}});
}

Result<Json> normalizer_json(const std::vector<NormalizerSpec>& specs) {
  using Kind = NormalizerSpec::Kind;
  std::vector<Json> steps;
  for (const NormalizerSpec& spec : specs) {
    switch (spec.kind) {
      case Kind::kNfc:
        steps.push_back({{"type", "NFC"}});
        break;
      case Kind::kNfd:
        steps.push_back({{"type", "NFD"}});
        break;
      case Kind::kNfkc:
        steps.push_back({{"type", "NFKC"}});
        break;
      case Kind::kNfkd:
        steps.push_back({{"type", "NFKD"}});
        break;
      case Kind::kLowercase:
        steps.push_back({{"type", "Lowercase"}});
        break;
      case Kind::kStripAccents:
        steps.push_back({{"type", "StripAccents"}});
        break;
      case Kind::kNmt:
        steps.push_back({{"type", "Nmt"}});
        break;
      case Kind::kPrepend:
        steps.push_back({{"type", "Prepend"}, {"prepend", spec.content}});
        break;
      case Kind::kReplace:
        steps.push_back({{"type", "Replace"},
                         {"pattern", pattern_json(spec.pattern, spec.is_regex)},
                         {"content", spec.content}});
        break;
      case Kind::kStrip:
        steps.push_back(
            {{"type", "Strip"}, {"strip_left", spec.left}, {"strip_right", spec.right}});
        break;
      case Kind::kBert:
        steps.push_back({{"type", "BertNormalizer"},
                         {"clean_text", spec.clean_text},
                         {"handle_chinese_chars", spec.chinese_chars},
                         {"strip_accents", spec.strip_accents ? Json(*spec.strip_accents) : Json()},
                         {"lowercase", spec.lowercase}});
        break;
      case Kind::kPrecompiled:
        steps.push_back(
            {{"type", "Precompiled"}, {"precompiled_charsmap", base64_encode(spec.content)}});
        break;
      case Kind::kSentencePiece:
        if (spec.space_as_suffix || !spec.escape_spaces) {
          return fail(ErrorCode::kUnsupported,
                      "a sentencepiece model with spaces as suffixes or unescaped has no "
                      "tokenizer.json form");
        }
        sentencepiece_steps(spec, steps);
        break;
    }
  }
  return sequence(std::move(steps), "normalizers");
}

Json pre_tokenizer_json(const std::vector<PreTokenizerSpec>& specs) {
  using Kind = PreTokenizerSpec::Kind;
  std::vector<Json> steps;
  for (const PreTokenizerSpec& spec : specs) {
    switch (spec.kind) {
      case Kind::kByteLevel:
        steps.push_back({{"type", "ByteLevel"},
                         {"add_prefix_space", spec.add_prefix_space},
                         {"trim_offsets", true},
                         {"use_regex", spec.use_regex}});
        break;
      case Kind::kSplit:
        steps.push_back({{"type", "Split"},
                         {"pattern", pattern_json(spec.pattern, spec.is_regex)},
                         {"behavior", behavior_name(spec.behavior)},
                         {"invert", spec.invert}});
        break;
      case Kind::kDigits:
        steps.push_back({{"type", "Digits"}, {"individual_digits", spec.individual_digits}});
        break;
      case Kind::kPunctuation:
        steps.push_back({{"type", "Punctuation"}, {"behavior", behavior_name(spec.behavior)}});
        break;
      case Kind::kWhitespace:
        steps.push_back({{"type", "Whitespace"}});
        break;
      case Kind::kWhitespaceSplit:
        steps.push_back({{"type", "WhitespaceSplit"}});
        break;
      case Kind::kMetaspace:
        steps.push_back({{"type", "Metaspace"},
                         {"replacement", spec.content},
                         {"prepend_scheme", prepend_name(spec.prepend)},
                         {"split", spec.split}});
        break;
      case Kind::kBert:
        steps.push_back({{"type", "BertPreTokenizer"}});
        break;
    }
  }
  return sequence(std::move(steps), "pretokenizers");
}

Json decoder_json(const TokenizerSpec& tokenizer) {
  using Kind = DecoderSpec::Kind;
  std::vector<Json> steps;
  const auto replace = [&](std::string_view what, std::string_view by) {
    steps.push_back({{"type", "Replace"},
                     {"pattern", pattern_json(std::string(what), false)},
                     {"content", by}});
  };
  const auto strip = [&](std::string_view what, std::int64_t start, std::int64_t stop) {
    steps.push_back({{"type", "Strip"}, {"content", what}, {"start", start}, {"stop", stop}});
  };
  for (const DecoderSpec& spec : tokenizer.decoders) {
    switch (spec.kind) {
      case Kind::kByteLevel:
        steps.push_back({{"type", "ByteLevel"},
                         {"add_prefix_space", true},
                         {"trim_offsets", true},
                         {"use_regex", true}});
        break;
      case Kind::kByteFallback:
        steps.push_back({{"type", "ByteFallback"}});
        break;
      case Kind::kFuse:
        steps.push_back({{"type", "Fuse"}});
        break;
      case Kind::kReplace:
        replace(spec.pattern, spec.content);
        break;
      case Kind::kStrip:
        strip(spec.content, spec.start, spec.stop);
        break;
      case Kind::kMetaspace:
        steps.push_back({{"type", "Metaspace"},
                         {"replacement", spec.content},
                         {"prepend_scheme", prepend_name(spec.prepend)},
                         {"split", true}});
        break;
      case Kind::kWordPiece:
        steps.push_back(
            {{"type", "WordPiece"}, {"prefix", spec.content}, {"cleanup", spec.cleanup}});
        break;
      case Kind::kSentencePiece:
        replace(kSpaceSymbol, " ");
        steps.push_back({{"type", "ByteFallback"}});
        steps.push_back({{"type", "Fuse"}});
        if (spec.strip_space) strip(" ", 1, 0);
        break;
    }
  }
  return sequence(std::move(steps), "decoders");
}

// Merges of a vocabulary that merges by score: every cut of a token into two, best
// score first.
std::vector<std::pair<TokenId, TokenId>> merges_by_score(const ModelSpec& model) {
  std::unordered_map<std::string_view, TokenId> ids;
  std::vector<std::string> texts(model.tokens.size());
  for (std::size_t id = 0; id < texts.size(); ++id) {
    if (!model.unmergeable.empty() && model.unmergeable[id]) continue;
    if (model.byte_level) {
      texts[id] = alphabet_to_bytes(model.tokens[id]).value_or("");
    } else {
      texts[id] = model.tokens[id];
    }
    if (!texts[id].empty()) ids.emplace(texts[id], static_cast<TokenId>(id));
  }
  struct Merge {
    double score;
    TokenId made, left, right;
  };
  std::vector<Merge> merges;
  for (std::size_t id = 0; id < texts.size(); ++id) {
    const std::string_view text = texts[id];
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = ids.find(text.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(text.substr(cut));
      if (right == ids.end()) continue;
      merges.push_back({model.scores[id], static_cast<TokenId>(id), left->second, right->second});
    }
  }
  std::ranges::sort(merges, [](const Merge& a, const Merge& b) {
    if (a.score != b.score) return a.score > b.score;
    return std::tie(a.made, a.left, a.right) < std::tie(b.made, b.left, b.right);
  });
  std::vector<std::pair<TokenId, TokenId>> pairs;
  pairs.reserve(merges.size());
  for (const Merge& merge : merges) pairs.emplace_back(merge.left, merge.right);
  return pairs;
}

Json vocabulary_json(const ModelSpec& model) {
  Json vocabulary = Json::object();
  for (std::size_t id = 0; id < model.tokens.size(); ++id) {
    if (model.present.empty() || model.present[id]) put(vocabulary, model.tokens[id], id);
  }
  return vocabulary;
}

Json model_json(const ModelSpec& model) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? Json() : Json(text);
  };
  const Json unk = model.unk >= 0 ? Json(model.tokens[model.unk]) : Json();
  switch (model.kind) {
    case ModelKind::kBpe: {
      Json json{{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", unk},
                {"continuing_subword_prefix", text_or_null(model.continuing_prefix)},
                {"end_of_word_suffix", text_or_null(model.end_of_word)},
                {"fuse_unk", model.fuse_unk},
                {"byte_fallback", model.byte_fallback},
                {"ignore_merges", model.ignore_merges},
                {"vocab", vocabulary_json(model)}};
      Json merges = Json::array();
      for (const auto& [left, right] : model.by_score ? merges_by_score(model) : model.merges) {
        merges.push_back(Json::array({model.tokens[left], model.tokens[right]}));
      }
      put(json, "merges", std::move(merges));
      return json;
    }
    case ModelKind::kUnigram: {
      Json vocabulary = Json::array();
      for (std::size_t id = 0; id < model.tokens.size(); ++id) {
        vocabulary.push_back(Json::array({model.tokens[id], model.scores[id]}));
      }
      return {{"type", "Unigram"},
              {"unk_id", model.unk >= 0 ? Json(model.unk) : Json()},
              {"vocab", std::move(vocabulary)},
              {"byte_fallback", model.byte_fallback}};
    }
    case ModelKind::kWordPiece:
      return {{"type", "WordPiece"},
              {"unk_token", unk},
              {"continuing_subword_prefix", model.continuing_prefix},
              {"max_input_chars_per_word", model.max_word_characters},
              {"vocab", vocabulary_json(model)}};
  }
  std::unreachable();
}

Json post_processor_json(const TokenizerSpec& spec) {
  if (spec.prefix.empty() && spec.suffix.empty()) return nullptr;
  // The template names its tokens by text; texts that two ids share are told apart.
  Json names = Json::object();
  const auto text_of = [&](TokenId id) {
    std::string text;
    if (static_cast<std::size_t>(id) < spec.model.tokens.size()) text = spec.model.tokens[id];
    for (const AddedTokenSpec& token : spec.added) {
      if (token.id == id) text = token.content;
    }
    if (names.contains(text) && names[text]["ids"][0] != id) text += fmt::format("#{}", id);
    return text;
  };
  const auto pieces = [&](const std::vector<TokenId>& ids, int type, Json& list) {
    for (const TokenId id : ids) {
      const std::string text = text_of(id);
      list.push_back({{"SpecialToken", {{"id", text}, {"type_id", type}}}});
      names[text] = {{"id", text}, {"ids", Json::array({id})}, {"tokens", Json::array({text})}};
    }
  };
  Json single = Json::array(), pair = Json::array();
  pieces(spec.prefix, 0, single);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  pieces(spec.suffix, 0, single);
  pair = single;
  pieces(spec.prefix, 1, pair);
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  pieces(spec.suffix, 1, pair);
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(names)}};
}

}  // namespace

Result<Json> spec_to_json(const TokenizerSpec& spec) {
  Json added = Json::array();
  std::vector<AddedTokenSpec> tokens = spec.added;
  for (const TokenId id : spec.model.user_defined) {
    tokens.push_back({.id = id, .content = spec.model.tokens[id], .special = false});
  }
  std::ranges::sort(tokens, [](const AddedTokenSpec& a, const AddedTokenSpec& b) {
    return a.id != b.id ? a.id < b.id : a.content < b.content;
  });
  for (const AddedTokenSpec& token : tokens) {
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", token.single_word},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  }
  Json json{{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  put(json, "added_tokens", std::move(added));
  WEFT_ASSIGN(Json normalizer, normalizer_json(spec.normalizers));
  put(json, "normalizer", std::move(normalizer));
  put(json, "pre_tokenizer", pre_tokenizer_json(spec.pre_tokenizers));
  put(json, "post_processor", post_processor_json(spec));
  put(json, "decoder", decoder_json(spec));
  put(json, "model", model_json(spec.model));
  return json;
}

}  // namespace weft::model
