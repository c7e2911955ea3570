#include "weft/model/gguf_word_patterns.h"

#include <algorithm>
#include <string>

namespace weft::model {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
constexpr std::string_view kLlama3 =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBloom = " ?[^(\\s|.,!?…。，、।۔،)]+";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseekCjk = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr std::string_view kDeepseek =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
// The letters that have case, of DeepSeek LLM's published tokenizer.json.
constexpr std::string_view kDeepseekLlmLetters =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-"
    "Ὅὐ-ὗὙὛὝὟ-"
    "ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-"
    "ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-"
    "𑣟𞤀-𞥃]+";
constexpr std::string_view kDeepseekPunctuation = "\\s?[!-/:-~！-／：-～‘-‟　-。]+";
constexpr std::string_view kDeepseekWide = "[一-龥ࠀ-一가-\ud7ff]+";

const std::vector<WordPatterns>& all_word_patterns() {
  static const std::vector<WordPatterns> names = [] {
    std::vector<WordPatterns> made;
    const auto add = [&](std::initializer_list<std::string_view> aliases,
                         std::vector<std::string_view> patterns, bool ignore_merges = false,
                         bool add_bos = false) {
      for (const std::string_view name : aliases) {
        made.push_back({name, patterns, ignore_merges, add_bos});
      }
    };
    add({"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de",
         "jina-v1-en", "jina-v2-code", "roberta-bpe", "mpt", "olmo", "jais", "trillion",
         "granite-docling", "exaone4", "a.x-4.0", "mellum", "modern-bert"},
        {kGpt2});
    add({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
        {"\\p{N}", kGpt2});
    add({"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
        {kLlama3}, true, true);
    add({"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, {kLlama3});
    add({"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "kormo", "solar-open",
         "grok-2"},
        {kQwen2});
    add({"qwen35"}, {kQwen35});
    add({"deepseek-llm"},
        {"[\r\n]", kDeepseekLlmLetters, kDeepseekPunctuation, "\\s+$", kDeepseekWide, "\\p{N}+"});
    add({"deepseek-coder"}, {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", kDeepseekWide, "\\p{N}"});
    add({"deepseek-v3", "hunyuan-dense", "joyai-llm"}, {"\\p{N}{1,3}", kDeepseekCjk, kDeepseek});
    add({"falcon"}, {"[\\p{P}\\$\\+<=>\\^~\\|`]+", kGpt2, "[0-9][0-9][0-9]"});
    add({"poro-chat", "bloom", "gpt3-finnish"}, {kBloom});
    add({"viking"}, {kBloom, "\\p{N}"});
    add({"tekken"}, {kTekken}, true, true);
    add({"gpt-4o", "llama4", "minimax-m2"}, {kGpt4o});
    return made;
  }();
  return names;
}

// One spelling for patterns that mean the same.
std::string canonical(std::string_view pattern) {
  constexpr std::string_view kIgnoringCase = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
  constexpr std::string_view kSpeltOut =
      "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
  std::string text(pattern);
  for (std::size_t at = 0; (at = text.find(kIgnoringCase, at)) != std::string::npos;) {
    text.replace(at, kIgnoringCase.size(), kSpeltOut);
  }
  // GPT-2's last alternative takes the white space that is a gap without it.
  if (text == std::string(kGpt2) + "|\\s+") text = kGpt2;
  return text;
}

// The patterns of `steps` in that spelling; nullopt for steps of another kind.
std::optional<std::vector<std::string>> patterns_of(const std::vector<PreTokenizerSpec>& steps) {
  using Kind = PreTokenizerSpec::Kind;
  if (steps.empty() || steps.back().kind != Kind::kByteLevel) return std::nullopt;
  std::vector<std::string> patterns;
  for (const PreTokenizerSpec& step : steps) {
    const bool last = &step == &steps.back();
    if (step.kind == Kind::kByteLevel && last) {
      if (step.use_regex) patterns.emplace_back(kGpt2);
    } else if (step.kind == Kind::kSplit && step.is_regex && !step.invert &&
               step.behavior == SplitBehavior::kIsolated) {
      patterns.push_back(canonical(step.pattern));
    } else if (step.kind == Kind::kDigits) {
      patterns.emplace_back(step.individual_digits ? "\\p{N}" : "\\p{N}+");
    } else {
      return std::nullopt;
    }
  }
  return patterns;
}

}  // namespace

const WordPatterns* find_word_patterns(std::string_view name) {
  const auto& all = all_word_patterns();
  const std::string_view wanted = name == "default" ? std::string_view("gpt-2") : name;
  const auto found = std::ranges::find(all, wanted, &WordPatterns::name);
  return found == all.end() ? nullptr : &*found;
}

std::optional<std::string_view> word_patterns_name(const TokenizerSpec& spec) {
  const auto wanted = patterns_of(spec.pre_tokenizers);
  if (!wanted) return std::nullopt;
  for (const WordPatterns& each : all_word_patterns()) {
    if (each.ignore_merges == spec.model.ignore_merges &&
        std::ranges::equal(each.patterns, *wanted, {}, canonical)) {
      return each.name;
    }
  }
  return std::nullopt;
}

}  // namespace weft::model
