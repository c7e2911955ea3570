// What a tokenizer is, as plain data: the readers of tokenizer.json, GGUF,
// sentencepiece, tiktoken and the rest fill it, make_tokenizer() runs it and
// spec_to_json() writes it. The steps and their names are those of Hugging Face's
// tokenizer.json. Format: docs/formats/tokenizers.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/result.h"
#include "weft/model/tokenizer.h"

namespace weft::model {

// A step of the text before it is cut.
struct NormalizerSpec {
  enum class Kind {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kPrepend,       // `content`, when the text is not empty
    kReplace,       // `pattern` by `content`
    kStrip,         // white space at `left`, `right`
    kStripAccents,  // drops the marks (Mn)
    kBert,
    kPrecompiled,    // sentencepiece's character map (`content`) on its own
    kSentencePiece,  // sentencepiece's whole normaliser
    kNmt,
  };
  Kind kind = Kind::kNfc;
  std::string pattern = {}, content = {};
  bool is_regex = false;
  bool left = true, right = true;
  // kBert
  bool clean_text = true, chinese_chars = true, lowercase = true;
  std::optional<bool> strip_accents = {};  // unset: as `lowercase`
  // kSentencePiece; `content` is the character map, may be empty
  bool add_dummy_prefix = true, remove_extra_spaces = true, escape_spaces = true;
  bool space_as_suffix = false;
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

enum class PrependScheme { kAlways, kFirst, kNever };

// A step that cuts the text into words.
struct PreTokenizerSpec {
  enum class Kind {
    kByteLevel,        // `add_prefix_space`, `use_regex`
    kSplit,            // `pattern`, `is_regex`, `behavior`, `invert`
    kDigits,           // `individual_digits`
    kPunctuation,      // `behavior`
    kWhitespace,       // \w+|[^\w\s]+
    kWhitespaceSplit,  // at white space
    kMetaspace,        // `content` replaces spaces, `prepend`, `split`
    kBert,
  };
  Kind kind = Kind::kByteLevel;
  std::string pattern = {}, content = {};
  bool is_regex = true, invert = false;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool add_prefix_space = false, use_regex = true;
  bool individual_digits = false;
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;
};

// A step that turns tokens back into text.
struct DecoderSpec {
  enum class Kind {
    kByteLevel,
    kByteFallback,
    kFuse,
    kReplace,        // `pattern` by `content`
    kStrip,          // up to `start` copies of `content` at the beginning, `stop` at the end
    kMetaspace,      // `content`, `prepend`
    kWordPiece,      // prefix `content`, `cleanup`
    kSentencePiece,  // sentencepiece's own decoding (not in tokenizer.json)
  };
  Kind kind = Kind::kByteLevel;
  std::string pattern = {}, content = {};
  std::int64_t start = 0, stop = 0;
  PrependScheme prepend = PrependScheme::kAlways;
  bool cleanup = true;
  // kSentencePiece
  bool strip_space = true;         // the dummy prefix is taken off again
  bool strip_every_space = false;  // and all white space at the beginning
};

struct AddedTokenSpec {
  TokenId id = -1;
  std::string content = {};
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = true;
};

enum class ModelKind { kBpe, kUnigram, kWordPiece };

struct ModelSpec {
  ModelKind kind = ModelKind::kBpe;
  // Text by id. In a byte-level vocabulary in GPT-2's alphabet. Ids that are only
  // added tokens are empty here.
  std::vector<std::string> tokens;
  std::vector<bool> present;  // which of them the model has; empty = all
  TokenId unk = -1;
  bool fuse_unk = false;       // several unknown characters in a row give one `unk`
  bool byte_fallback = false;  // unknown characters as <0xNN> tokens
  // kBpe
  bool byte_level = false;     // words are bytes, not characters
  bool ignore_merges = false;  // a word that is a token is that token
  std::string end_of_word;     // CLIP's "</w>"
  std::string continuing_prefix;
  std::vector<std::pair<TokenId, TokenId>> merges;  // by rank
  // By score instead of by merges (sentencepiece, tiktoken): two neighbours merge
  // when together they are a token; higher first, then the left one.
  bool by_score = false;
  std::vector<double> scores;
  std::vector<bool> unmergeable;  // tokens that no merge may make (control, byte, unused, ...)
  // kUnigram: `scores`, with sums rounded as sentencepiece (float) or `tokenizers`
  // (double) does.
  bool float_sums = false;
  // kWordPiece: `continuing_prefix`; longer words are unknown.
  std::int64_t max_word_characters = 100;
  // Tokens that are found as they stand before anything else (sentencepiece's
  // user-defined symbols), longest first.
  std::vector<TokenId> user_defined;
};

struct TokenizerSpec {
  std::string kind;  // Tokenizer::kind()
  std::vector<NormalizerSpec> normalizers;
  std::vector<PreTokenizerSpec> pre_tokenizers;
  ModelSpec model;
  std::vector<AddedTokenSpec> added;
  std::vector<TokenId> prefix, suffix;  // what the post-processor puts around a text
  std::vector<DecoderSpec> decoders;
  // Bytes that are not UTF-8 reach the model as they are, for its byte tokens;
  // otherwise each is replaced by U+FFFD first.
  bool keeps_invalid_bytes = false;
  TokenId bos = -1;
  std::vector<TokenId> eos;
};

// Checks the spec (ids in range, patterns compile) and builds its tables. Errors
// begin with `where`.
Result<std::shared_ptr<const Tokenizer>> make_tokenizer(TokenizerSpec spec, std::string_view where);

Result<TokenizerSpec> spec_from_json(const Json& json, std::string_view where);
Result<TokenizerSpec> spec_from_text(std::string_view text, std::string_view where);
Result<TokenizerSpec> spec_from_sentencepiece(std::string_view bytes, std::string_view file);
Result<TokenizerSpec> spec_from_tiktoken(std::string_view text, std::string_view file);
Result<TokenizerSpec> spec_from_llama2c(std::string_view bytes, std::int64_t vocab_size,
                                        std::string_view file);
Result<TokenizerSpec> spec_from_gpt2_files(std::string_view encoder_json,
                                           std::string_view vocab_bpe);
// kUnsupported when a step has no form in tokenizer.json.
Result<Json> spec_to_json(const TokenizerSpec& spec);

// GPT-2's alphabet: each byte as a printable character, and back (-1: not of it).
const std::string& byte_character(unsigned char byte);
int character_byte(char32_t character);
std::string bytes_to_alphabet(std::string_view bytes);
// nullopt when a character is not of the alphabet.
std::optional<std::string> alphabet_to_bytes(std::string_view text);
// The byte of "<0x0A>", or -1.
int byte_of_fallback_token(std::string_view text);

}  // namespace weft::model
