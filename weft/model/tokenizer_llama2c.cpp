// llama2.c's tokenizer.bin: the longest token's length, then for each id a float
// score, a length and the bytes (karpathy/llama2.c, run.c, build_tokenizer).
#include <cstring>

#include "weft/model/tokenizer_spec.h"
#include "weft/model/unicode_text.h"

namespace weft::model {
namespace {

constexpr TokenId kFirstByteToken = 3;

}  // namespace

Result<TokenizerSpec> spec_from_llama2c(std::string_view bytes, std::int64_t vocab_size,
                                        std::string_view file) {
  if (vocab_size < 3 || vocab_size > 4'000'000) {
    return fail(ErrorCode::kInvalidArgument, "{}: a vocabulary of {} tokens", file, vocab_size);
  }
  std::size_t at = 0;
  const auto read = [&](auto& value) {
    if (bytes.size() - at < sizeof value) return false;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    at += sizeof value;
    return true;
  };
  std::int32_t longest = 0;
  if (!read(longest)) {
    return fail(ErrorCode::kCorrupt, "{}: ends before the longest token's length", file);
  }
  TokenizerSpec spec;
  spec.kind = "sentencepiece-bpe";
  for (std::int64_t id = 0; id < vocab_size; ++id) {
    float score = 0;
    std::int32_t length = 0;
    if (!read(score) || !read(length)) {
      return fail(ErrorCode::kCorrupt,
                  "{}: ends at token {} of {}; is this the tokenizer of that model?", file, id,
                  vocab_size);
    }
    if (length < 0 || static_cast<std::size_t>(length) > bytes.size() - at) {
      return fail(ErrorCode::kCorrupt, "{}: token {} is {} bytes long, {} are left", file, id,
                  length, bytes.size() - at);
    }
    // The file has plain spaces where the sentencepiece model has U+2581.
    std::string text;
    for (const char c : bytes.substr(at, length)) {
      if (c == ' ') {
        text += "\u2581";
      } else {
        text += c;
      }
    }
    at += length;
    spec.model.tokens.push_back(std::move(text));
    spec.model.scores.push_back(score == score ? score : -1e30F);
  }
  // The export writes "\n<s>\n" and "\n</s>\n" for the two ends.
  spec.model.tokens[0] = "<unk>";
  spec.model.tokens[1] = "<s>";
  spec.model.tokens[2] = "</s>";
  spec.model.unmergeable.assign(vocab_size, false);
  for (TokenId id = 0; id < kFirstByteToken; ++id) {
    spec.model.unmergeable[id] = true;
    spec.added.push_back({.id = id, .content = spec.model.tokens[id]});
  }
  for (std::int64_t id = kFirstByteToken; id < vocab_size && id < kFirstByteToken + 256; ++id) {
    if (byte_of_fallback_token(spec.model.tokens[id]) >= 0) spec.model.unmergeable[id] = true;
  }
  spec.model.by_score = true;
  spec.model.byte_fallback = true;
  spec.model.unk = 0;
  spec.normalizers = {
      {.kind = NormalizerSpec::Kind::kPrepend, .content = "\u2581"},
      {.kind = NormalizerSpec::Kind::kReplace, .pattern = " ", .content = "\u2581"}};
  spec.decoders = {{.kind = DecoderSpec::Kind::kReplace, .pattern = "\u2581", .content = " "},
                   {.kind = DecoderSpec::Kind::kByteFallback},
                   {.kind = DecoderSpec::Kind::kFuse},
                   {.kind = DecoderSpec::Kind::kStrip, .content = " ", .start = 1}};
  spec.keeps_invalid_bytes = true;
  spec.bos = 1;
  spec.eos = {2};
  spec.prefix = {1};
  return spec;
}

Result<std::shared_ptr<const Tokenizer>> tokenizer_from_llama2c(std::string_view bytes,
                                                                std::int64_t vocab_size,
                                                                std::string_view file) {
  WEFT_ASSIGN(TokenizerSpec spec, spec_from_llama2c(bytes, vocab_size, file));
  return make_tokenizer(std::move(spec), file);
}

}  // namespace weft::model
