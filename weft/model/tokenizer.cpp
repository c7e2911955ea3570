#include "weft/model/tokenizer.h"

namespace weft::model {

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  DecodeState state;
  std::string text;
  for (const TokenId id : ids) decode_next(id, skip_special, state, text);
  decode_end(state, text);
  return text;
}

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

std::string StreamDecoder::push(TokenId id) {
  std::string text;
  tokenizer_->decode_next(id, skip_special_, state_, text);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  tokenizer_->decode_end(state_, text);
  return text;
}

}  // namespace weft::model
