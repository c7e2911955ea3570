// tokenizer.ggml.* from a tokenizer of another format.
#include <algorithm>
#include <unordered_map>

#include "weft/model/gguf_word_patterns.h"
#include "weft/model/gguf_writer.h"
#include "weft/model/tokenizer_spec.h"

namespace weft::model {
namespace {

// llama.cpp, enum llama_token_type.
enum TokenType : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// The types of the steps that change the text ("NFC"); of a tokenizer.json.
std::vector<std::string> normalizers_of(const Json& json) {
  std::vector<std::string> types;
  const auto add = [&](const Json& step, const auto& self) -> void {
    if (!step.is_object()) return;
    if (const auto steps = step.find("normalizers"); steps != step.end()) {
      for (const Json& each : *steps) self(each, self);
    } else if (step.contains("type")) {
      types.push_back(step["type"].get<std::string>());
    }
  };
  add(json["normalizer"], add);
  return types;
}

// GGUF has no place for a normalizer. NFC is left out, as llama.cpp's converter does
// it, and noted; others are refused, but for what `llama` vocabularies do to spaces.
Status check_normalizers(const Json& json, const TokenizerSpec& spec,
                         std::vector<std::string>& notes) {
  for (const std::string& type : normalizers_of(json)) {
    if (!spec.model.byte_level && type == "Prepend") continue;
    if (!spec.model.byte_level && type == "Replace" &&
        std::ranges::all_of(spec.normalizers, [](const NormalizerSpec& step) {
          return step.kind != NormalizerSpec::Kind::kReplace ||
                 (!step.is_regex && step.pattern == " " && step.content == "\u2581");
        })) {
      continue;
    }
    if (type != "NFC") {
      return fail(ErrorCode::kUnsupported,
                  "its tokenizer changes texts by {}, which GGUF cannot say; keep the model as a "
                  "safetensors folder",
                  type);
    }
    notes.emplace_back(
        "the tokenizer's NFC normalizer is not in the GGUF file: texts that are not in NFC get "
        "other ids");
  }
  return {};
}

// Text and type of every id up to the rows of the embedding; ids that no token has
// become unused ones, as llama.cpp's converter does.
struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
};

Vocabulary vocabulary_of(const TokenizerSpec& spec, std::int64_t rows) {
  Vocabulary out;
  const auto size = std::max(static_cast<std::size_t>(rows), spec.model.tokens.size());
  out.tokens.resize(size);
  out.types.assign(size, kUnused);
  for (std::size_t i = 0; i < size; ++i) {
    const bool there =
        i < spec.model.tokens.size() && (spec.model.present.empty() || spec.model.present[i]);
    out.tokens[i] = there ? spec.model.tokens[i] : fmt::format("[PAD{}]", i);
    if (there)
      out.types[i] =
          byte_of_fallback_token(out.tokens[i]) >= 0 && spec.model.byte_fallback ? kByte : kNormal;
  }
  for (const AddedTokenSpec& added : spec.added) {
    const auto id = static_cast<std::size_t>(added.id);
    if (added.id < 0 || id >= size) continue;
    out.tokens[id] = added.content;
    out.types[id] = added.special ? kControl : kUserDefined;
  }
  if (spec.model.unk >= 0 && static_cast<std::size_t>(spec.model.unk) < size &&
      !spec.model.byte_level) {
    out.types[static_cast<std::size_t>(spec.model.unk)] = kUnknown;
  }
  return out;
}

// A score that makes "merge the best neighbours first" do what the ranks say.
std::vector<float> scores_of(const TokenizerSpec& spec, std::size_t size) {
  std::vector<float> scores(size, 0.0F);
  if (!spec.model.scores.empty()) {
    for (std::size_t i = 0; i < spec.model.scores.size() && i < size; ++i)
      scores[i] = spec.model.scores[i];
    return scores;
  }
  std::unordered_map<std::string_view, std::size_t> id_of;
  for (std::size_t i = 0; i < spec.model.tokens.size(); ++i) id_of.emplace(spec.model.tokens[i], i);
  const auto never = -static_cast<float>(spec.model.merges.size() + 1);
  for (std::size_t i = 0; i < spec.model.tokens.size() && i < size; ++i) scores[i] = never;
  std::string made;
  for (std::size_t rank = spec.model.merges.size(); rank-- > 0;) {
    const auto& [left, right] = spec.model.merges[rank];
    made = spec.model.tokens[static_cast<std::size_t>(left)] +
           spec.model.tokens[static_cast<std::size_t>(right)];
    if (const auto it = id_of.find(made); it != id_of.end())
      scores[it->second] = -static_cast<float>(rank);
  }
  return scores;
}

}  // namespace

Status set_tokenizer_metadata(GgufMetadata& metadata, const ModelConfig& config,
                              const Tokenizer& tokenizer, std::vector<std::string>& notes) {
  WEFT_ASSIGN(const Json json, tokenizer.to_tokenizer_json());
  WEFT_ASSIGN(const TokenizerSpec spec, spec_from_json(json, "tokenizer.json"));
  if (spec.model.kind != ModelKind::kBpe) {
    return fail(ErrorCode::kUnsupported,
                "a {} tokenizer cannot be written to GGUF; keep the model as a safetensors folder",
                tokenizer.kind());
  }
  WEFT_TRY(check_normalizers(json, spec, notes));
  const Vocabulary vocabulary = vocabulary_of(spec, config.vocab_size);
  if (spec.model.byte_level) {
    const auto name = word_patterns_name(spec);
    if (!name) {
      return fail(ErrorCode::kUnsupported,
                  "its tokenizer cuts or merges words in a way that GGUF readers have no name for; "
                  "keep the model as a safetensors folder");
    }
    metadata.set_text("tokenizer.ggml.model", "gpt2");
    metadata.set_text("tokenizer.ggml.pre", std::string(*name));
    if (spec.pre_tokenizers.back().add_prefix_space)
      metadata.set_bool("tokenizer.ggml.add_space_prefix", true);
    std::vector<std::string> merges;
    merges.reserve(spec.model.merges.size());
    for (const auto& [left, right] : spec.model.merges) {
      merges.push_back(spec.model.tokens[static_cast<std::size_t>(left)] + " " +
                       spec.model.tokens[static_cast<std::size_t>(right)]);
    }
    metadata.set_texts("tokenizer.ggml.merges", merges);
  } else {
    if (!spec.model.byte_fallback) {
      return fail(ErrorCode::kUnsupported,
                  "a {} tokenizer without byte tokens cannot be written to GGUF", tokenizer.kind());
    }
    metadata.set_text("tokenizer.ggml.model", "llama");
    metadata.set_text("tokenizer.ggml.pre", "default");
    metadata.set_f32s("tokenizer.ggml.scores", scores_of(spec, vocabulary.tokens.size()));
    bool prefix = false;
    for (const NormalizerSpec& step : spec.normalizers) {
      prefix = prefix || step.kind == NormalizerSpec::Kind::kPrepend;
    }
    for (const PreTokenizerSpec& step : spec.pre_tokenizers) {
      if (step.kind != PreTokenizerSpec::Kind::kMetaspace || step.content != "\u2581") {
        return fail(ErrorCode::kUnsupported,
                    "its tokenizer cuts words before it merges, which GGUF's llama vocabularies "
                    "cannot say; keep the model as a safetensors folder");
      }
      prefix = prefix || step.prepend != PrependScheme::kNever;
    }
    metadata.set_bool("tokenizer.ggml.add_space_prefix", prefix);
  }
  metadata.set_texts("tokenizer.ggml.tokens", vocabulary.tokens);
  metadata.set_i32s("tokenizer.ggml.token_type", vocabulary.types);
  const auto id = [&](std::string_view key, std::int64_t value) {
    if (value >= 0)
      metadata.set_u32(fmt::format("tokenizer.ggml.{}_token_id", key),
                       static_cast<std::uint32_t>(value));
  };
  id("bos", tokenizer.bos());
  if (!tokenizer.eos().empty()) {
    id("eos", tokenizer.eos().front());
  } else if (!config.eos_tokens.empty()) {
    id("eos", config.eos_tokens.front());
  }
  // Some models end replies and texts with two different tokens.
  if (config.eos_tokens.size() > 1) id("eot", config.eos_tokens[1]);
  id("unknown", spec.model.unk);
  const bool bos_first =
      tokenizer.bos() >= 0 && !spec.prefix.empty() && spec.prefix.front() == tokenizer.bos();
  metadata.set_bool("tokenizer.ggml.add_bos_token", bos_first);
  metadata.set_bool("tokenizer.ggml.add_eos_token", !spec.suffix.empty());
  return {};
}

}  // namespace weft::model
