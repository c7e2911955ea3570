#include <algorithm>

#include "weft/model/tokenizer_spec.h"
#include "weft/model/unicode_text.h"

namespace weft::model {

std::shared_ptr<const Tokenizer> char_tokenizer(std::string_view alphabet) {
  TokenizerSpec spec;
  spec.kind = "character";
  spec.model.tokens = {"<pad>", "<bos>", "<eos>"};
  for (TokenId id = 0; id < 3; ++id) {
    spec.added.push_back({.id = id, .content = spec.model.tokens[id]});
  }
  for (std::size_t at = 0; at < alphabet.size();) {
    const CodePoint point = decode_utf8(alphabet, at);
    std::string character(alphabet.substr(at, point.length));
    if (point.valid && std::ranges::find(spec.model.tokens, character) == spec.model.tokens.end()) {
      spec.model.tokens.push_back(std::move(character));
    }
    at += point.length;
  }
  spec.decoders = {{.kind = DecoderSpec::Kind::kFuse}};
  spec.bos = 1;
  spec.eos = {2};
  auto made = make_tokenizer(std::move(spec), "character vocabulary");
  WEFT_CHECK(made.has_value(), "{}", made.error().message);
  return std::move(*made);
}

}  // namespace weft::model
