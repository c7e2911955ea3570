// tiktoken's rank files ("base64 rank" lines) and GPT-2's encoder.json + vocab.bpe.
#include <charconv>
#include <unordered_map>

#include "weft/base/json.h"
#include "weft/model/base64.h"
#include "weft/model/tokenizer_spec.h"

namespace weft::model {
namespace {

// meta-llama/llama-models, llama3/tokenizer.py: the pattern and the special tokens.
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr int kLlama3Specials = 256;
constexpr std::string_view kLlama3Names[] = {
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|reserved_special_token_0|>",
    "<|reserved_special_token_1|>",
    "<|finetune_right_pad_id|>",
    "<|step_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
    "<|image|>",
};
constexpr std::int64_t kMostRanks = 4'000'000;

// Calls visit(line, number) for each line that is not empty.
template <class Visit>
Status each_line(std::string_view text, Visit visit) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) WEFT_TRY(visit(line, number));
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> spec_from_tiktoken(std::string_view text, std::string_view file) {
  TokenizerSpec spec;
  spec.kind = "bpe";
  WEFT_TRY(each_line(text, [&](std::string_view line, std::size_t number) -> Status {
    const std::size_t space = line.find(' ');
    std::int64_t rank = -1;
    if (space != std::string_view::npos) {
      const std::string_view digits = line.substr(space + 1);
      const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
      if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) rank = -1;
    }
    const auto bytes = base64_decode(line.substr(0, space));
    if (rank < 0 || rank >= kMostRanks || !bytes || bytes->empty()) {
      return fail(ErrorCode::kCorrupt, "{}:{}: not a line of base64 and rank", file, number);
    }
    if (static_cast<std::size_t>(rank) != spec.model.tokens.size()) {
      return fail(ErrorCode::kUnsupported,
                  "{}:{}: rank {} where {} comes next; the ranks must "
                  "be in order and without holes",
                  file, number, rank, spec.model.tokens.size());
    }
    spec.model.tokens.push_back(bytes_to_alphabet(*bytes));
    spec.model.scores.push_back(-static_cast<double>(rank));
    return {};
  }));
  if (spec.model.tokens.empty()) {
    return fail(ErrorCode::kCorrupt, "{}: holds no ranks", file);
  }
  const auto first = static_cast<TokenId>(spec.model.tokens.size());
  const auto named = static_cast<int>(std::size(kLlama3Names));
  for (int i = 0; i < kLlama3Specials; ++i) {
    spec.added.push_back(
        {.id = first + i,
         .content = i < named ? std::string(kLlama3Names[i])
                              : fmt::format("<|reserved_special_token_{}|>", 2 + i - named)});
  }
  spec.pre_tokenizers = {
      {.kind = PreTokenizerSpec::Kind::kSplit, .pattern = std::string(kLlama3Pattern)},
      {.kind = PreTokenizerSpec::Kind::kByteLevel, .use_regex = false}};
  spec.decoders = {{.kind = DecoderSpec::Kind::kByteLevel}};
  spec.model.byte_level = true;
  spec.model.by_score = true;
  spec.model.ignore_merges = true;
  spec.bos = first;
  spec.prefix = {first};
  spec.eos = {first + 1, first + 8, first + 9};
  return spec;
}

Result<TokenizerSpec> spec_from_gpt2_files(std::string_view encoder_json,
                                           std::string_view vocab_bpe) {
  TokenizerSpec spec;
  spec.kind = "bpe";
  WEFT_ASSIGN(const Json encoder, parse_json(encoder_json, "encoder.json"));
  if (!encoder.is_object()) {
    return fail(ErrorCode::kInvalidArgument, "encoder.json: not an object of token and id");
  }
  std::unordered_map<std::string_view, TokenId> ids;
  const auto size = static_cast<std::int64_t>(encoder.size());
  spec.model.tokens.resize(encoder.size());
  spec.model.present.assign(encoder.size(), false);
  for (const auto& [text, value] : *encoder.get_ptr<const Json::object_t*>()) {
    const std::int64_t id = value.is_number_integer() ? value.get<std::int64_t>() : -1;
    if (id < 0 || id >= size || spec.model.present[id]) {
      return fail(ErrorCode::kInvalidArgument,
                  "encoder.json: the id of \"{}\" must be unique and below {}", text, size);
    }
    spec.model.tokens[id] = text;
    spec.model.present[id] = true;
    ids.emplace(text, static_cast<TokenId>(id));
  }
  WEFT_TRY(each_line(vocab_bpe, [&](std::string_view line, std::size_t number) -> Status {
    if (line.starts_with("#version")) return {};
    const std::size_t space = line.find(' ');
    const auto left = ids.find(line.substr(0, space));
    const auto right =
        space == std::string_view::npos ? ids.end() : ids.find(line.substr(space + 1));
    if (left == ids.end() || right == ids.end()) {
      return fail(ErrorCode::kInvalidArgument,
                  "vocab.bpe:{}: not a merge of two tokens of encoder.json", number);
    }
    spec.model.merges.emplace_back(left->second, right->second);
    return {};
  }));
  if (const auto end = ids.find("<|endoftext|>"); end != ids.end()) {
    spec.added.push_back({.id = end->second, .content = "<|endoftext|>"});
    spec.bos = end->second;
    spec.eos = {end->second};
  }
  spec.model.byte_level = true;
  spec.pre_tokenizers = {{.kind = PreTokenizerSpec::Kind::kByteLevel}};
  spec.decoders = {{.kind = DecoderSpec::Kind::kByteLevel}};
  return spec;
}

Result<std::shared_ptr<const Tokenizer>> tokenizer_from_tiktoken(std::string_view text,
                                                                 std::string_view file) {
  WEFT_ASSIGN(TokenizerSpec spec, spec_from_tiktoken(text, file));
  return make_tokenizer(std::move(spec), file);
}

Result<std::shared_ptr<const Tokenizer>> tokenizer_from_gpt2_files(std::string_view encoder_json,
                                                                   std::string_view vocab_bpe) {
  WEFT_ASSIGN(TokenizerSpec spec, spec_from_gpt2_files(encoder_json, vocab_bpe));
  return make_tokenizer(std::move(spec), "encoder.json");
}

}  // namespace weft::model
