// Tokens back to text, one at a time, with the results of the reference library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/model/tokenizer_spec.h"

namespace weft::model {

// Immutable; may be used from many threads, one DecodeState per sequence.
class TokenDecoder {
 public:
  static Result<TokenDecoder> make(const std::vector<DecoderSpec>& specs, std::string_view where);

  // Appends the text that is certain once `token` (its text in the vocabulary) came.
  // `unknown`: it is the unknown token.
  void next(std::string_view token, bool unknown, DecodeState& state, std::string& text) const;
  void end(DecodeState& state, std::string& text) const;
  // The bytes that a token stands for on its own.
  std::string bytes(std::string_view token) const;

 private:
  enum class Form { kJoinedBySpace, kByteLevel, kSteps, kSentencePiece };
  void flush_bytes(DecodeState& state, std::string& text) const;
  void append(std::string_view piece, DecodeState& state, std::string& text) const;
  void sentencepiece(std::string_view token, bool unknown, DecodeState& state,
                     std::string& text) const;
  void hold_and_append(std::string_view bytes, DecodeState& state, std::string& text) const;

  Form form_ = Form::kJoinedBySpace;
  std::vector<DecoderSpec> steps_;  // each token
  std::vector<DecoderSpec> fused_;  // the whole text: kStrip at its beginning
  bool byte_fallback_ = false;
};

}  // namespace weft::model
