// A tokenizer of single bytes and given pieces, for tests that need a vocabulary.
#pragma once

#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/model/tokenizer.h"

namespace weft::test {

// Ids 0 to 255 are bytes, 256 ends a reply, then come the pieces.
class ByteTokenizer : public model::Tokenizer {
 public:
  explicit ByteTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}

  std::vector<model::TokenId> encode(std::string_view text, model::EncodeOptions) const override {
    std::vector<model::TokenId> out;
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
    return out;
  }
  std::string token_bytes(model::TokenId id) const override {
    if (id >= 0 && id < 256) return std::string(1, static_cast<char>(id));
    if (id == 256) return "</s>";
    const auto at = static_cast<std::size_t>(id) - 257;
    return id > 256 && at < pieces_.size() ? pieces_[at] : "";
  }
  void decode_next(model::TokenId id, bool, model::DecodeState&, std::string& text) const override {
    if (id != 256) text += token_bytes(id);
  }
  void decode_end(model::DecodeState&, std::string&) const override {}
  std::int64_t vocab_size() const override {
    return 257 + static_cast<std::int64_t>(pieces_.size());
  }
  model::TokenId bos() const override { return -1; }
  const std::vector<model::TokenId>& eos() const override { return eos_; }
  const std::vector<model::SpecialToken>& special_tokens() const override { return special_; }
  model::TokenId find_token(std::string_view) const override { return -1; }
  std::string kind() const override { return "bytes"; }
  Result<Json> to_tokenizer_json() const override {
    return fail(ErrorCode::kUnsupported, "a test's tokenizer has no file");
  }

 private:
  std::vector<std::string> pieces_;
  std::vector<model::TokenId> eos_{256};
  std::vector<model::SpecialToken> special_{{256, "</s>", true}};
};

// Pieces that end one part of a JSON text and begin another, as real vocabularies have.
inline std::vector<std::string> json_pieces() {
  return {"{\"",    "\":",     "\": ",  "\",",  "\", \"", "\"}",   "\"]",   "\"}]",     "}}",
          "]]",     "},",      "],",    "}, {", "[[",     "[{\"",  "\": [", "\": {",    "true",
          "tru",    "null",    "nul",   "e,",   "l]",     "e}",    "ab",    "abc",      "a\"",
          "x\":",   "\"\"",    "\"\":", "12",   "3.",     "+1",    "*(",    "))",       ");",
          "  ",     "\n  ",    " \"",   "é",    "a\xC3",  "\xA9z", "name",  "\"name\"", "tags",
          "deep\"", ": \"a\"", "\\n",   "\\\"", "x\\",    "-1",    ",1",    ", 2"};
}

}  // namespace weft::test
