// Tokenizer: text <-> ids, as the model's publisher defines it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"

namespace weft {
using Json = nlohmann::ordered_json;  // weft/base/json.h has the whole type
}

namespace weft::model {

using TokenId = std::int32_t;

struct SpecialToken {
  TokenId id;
  std::string text;
  bool special = true;  // hidden from decoded text when skip_special is set
};

struct EncodeOptions {
  bool add_special = true;     // add BOS/EOS as the model's post-processor does
  bool parse_special = false;  // recognise special tokens written in the text
};

// How far the decoding of one sequence has come.
struct DecodeState {
  bool first = true;          // no token was decoded yet
  std::int64_t stripped = 0;  // characters taken off the beginning so far
  bool strip_done = false;
  std::string held;  // bytes that later tokens may complete
};

// Immutable after it is made; every method may be called from many threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const = 0;
  // The exact bytes of one token (may be a part of a UTF-8 character). Special
  // tokens give their text. Out of range gives an empty string.
  virtual std::string token_bytes(TokenId id) const = 0;
  // The text of a sequence as the reference library gives it, invalid UTF-8
  // replaced by U+FFFD.
  std::string decode(std::span<const TokenId> ids, bool skip_special = true) const;
  // The same token by token: appends the text that is certain after `id`, and at the
  // end what was held back.
  virtual void decode_next(TokenId id, bool skip_special, DecodeState& state,
                           std::string& text) const = 0;
  virtual void decode_end(DecodeState& state, std::string& text) const = 0;

  virtual std::int64_t vocab_size() const = 0;
  virtual TokenId bos() const = 0;                      // -1 = none
  virtual const std::vector<TokenId>& eos() const = 0;  // ids that end a reply
  virtual const std::vector<SpecialToken>& special_tokens() const = 0;
  virtual TokenId find_token(std::string_view text) const = 0;  // -1 = none
  virtual std::string kind() const = 0;                         // "bpe", "sentencepiece-bpe", ...

  // This tokenizer as a Hugging Face tokenizer.json, where its kind has one.
  virtual Result<Json> to_tokenizer_json() const = 0;
};

// Streams decode() of a growing sequence: push() returns the new text, holding
// back bytes that may be the start of a character (where a vocabulary spells rare
// characters as byte tokens: the whole run of them, which decodes as one). All
// pieces together are decode() of the sequence. One object per sequence.
class StreamDecoder {
 public:
  StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = true);
  std::string push(TokenId id);
  std::string finish();  // what was held back, invalid bytes as U+FFFD

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  DecodeState state_;
};

class GgufFile;
Result<std::shared_ptr<const Tokenizer>> tokenizer_from_json(std::string_view text,
                                                             std::string_view file);
Result<std::shared_ptr<const Tokenizer>> tokenizer_from_gguf(const GgufFile& file);
Result<std::shared_ptr<const Tokenizer>> tokenizer_from_sentencepiece(std::string_view bytes,
                                                                      std::string_view file);
// tiktoken rank file ("base64 rank" lines) with Llama-3's pattern and specials.
Result<std::shared_ptr<const Tokenizer>> tokenizer_from_tiktoken(std::string_view text,
                                                                 std::string_view file);
// llama2.c tokenizer.bin (tok512.bin); `vocab_size` comes from the model.
Result<std::shared_ptr<const Tokenizer>> tokenizer_from_llama2c(std::string_view bytes,
                                                                std::int64_t vocab_size,
                                                                std::string_view file);
// GPT-2's encoder.json and vocab.bpe.
Result<std::shared_ptr<const Tokenizer>> tokenizer_from_gpt2_files(std::string_view encoder_json,
                                                                   std::string_view vocab_bpe);
// Whatever lies at `path`: a file of a kind above, or a folder that holds one.
Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::filesystem::path& path);
// One token per character of `alphabet` (UTF-8), plus pad, bos and eos at ids
// 0, 1, 2: the built-in vocabulary of the small tasks and of text training.
std::shared_ptr<const Tokenizer> char_tokenizer(std::string_view alphabet);

}  // namespace weft::model
