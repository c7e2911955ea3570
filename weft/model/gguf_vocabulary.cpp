// tokenizer.ggml.* from a tokenizer of another format.
#include <array>
#include <unordered_map>

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

// llama.cpp knows word patterns by name (tokenizer.ggml.pre).
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Result<std::string> pattern_name(const TokenizerSpec& spec) {
  using Kind = PreTokenizerSpec::Kind;
  const auto& steps = spec.pre_tokenizers;
  const auto is = [&](std::size_t i, Kind kind) {
    return i < steps.size() && steps[i].kind == kind;
  };
  if (steps.size() == 1 && is(0, Kind::kByteLevel) && steps[0].use_regex) return "gpt-2";
  if (steps.size() == 2 && is(0, Kind::kDigits) && steps[0].individual_digits &&
      is(1, Kind::kByteLevel) && steps[1].use_regex) {
    return "smollm";
  }
  if (steps.size() == 2 && is(0, Kind::kSplit) && is(1, Kind::kByteLevel) && !steps[1].use_regex) {
    if (steps[0].pattern == kLlama3Pattern) return "llama-bpe";
    if (steps[0].pattern == kQwen2Pattern) return "qwen2";
  }
  return fail(ErrorCode::kUnsupported,
              "its tokenizer cuts words in a way that GGUF readers have no name for; keep the "
              "model as a safetensors folder");
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
                              const Tokenizer& tokenizer) {
  WEFT_ASSIGN(const Json json, tokenizer.to_tokenizer_json());
  WEFT_ASSIGN(const TokenizerSpec spec, spec_from_json(json, "tokenizer.json"));
  if (spec.model.kind != ModelKind::kBpe) {
    return fail(ErrorCode::kUnsupported,
                "a {} tokenizer cannot be written to GGUF; keep the model as a safetensors folder",
                tokenizer.kind());
  }
  const Vocabulary vocabulary = vocabulary_of(spec, config.vocab_size);
  if (spec.model.byte_level) {
    WEFT_ASSIGN(const std::string name, pattern_name(spec));
    metadata.set_text("tokenizer.ggml.model", "gpt2");
    metadata.set_text("tokenizer.ggml.pre", name);
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
      prefix = prefix || (step.kind == PreTokenizerSpec::Kind::kMetaspace &&
                          step.prepend != PrependScheme::kNever);
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
