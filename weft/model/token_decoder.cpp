#include "weft/model/token_decoder.h"

#include <algorithm>

#include "weft/model/unicode_text.h"

namespace weft::model {
namespace {

constexpr std::string_view kSpaceSymbol = "\u2581";

std::string replace_all(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  std::size_t at = 0;
  while (!what.empty()) {
    const std::size_t found = text.find(what, at);
    if (found == std::string_view::npos) break;
    out.append(text, at, found - at);
    out += by;
    at = found + what.size();
  }
  out.append(text, at);
  return out;
}

// What `tokenizers` calls cleanup: English spacing around punctuation.
std::string clean_up(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [what, by] : kRules) text = replace_all(text, what, by);
  return text;
}

std::string_view strip(std::string_view text, const DecoderSpec& spec) {
  for (std::int64_t i = 0; i < spec.start && text.starts_with(spec.content); ++i) {
    text.remove_prefix(spec.content.size());
  }
  for (std::int64_t i = 0; i < spec.stop && text.ends_with(spec.content); ++i) {
    text.remove_suffix(spec.content.size());
  }
  return text;
}

}  // namespace

Result<TokenDecoder> TokenDecoder::make(const std::vector<DecoderSpec>& specs,
                                        std::string_view where) {
  using Kind = DecoderSpec::Kind;
  TokenDecoder decoder;
  bool fused = false;
  for (const DecoderSpec& spec : specs) {
    switch (spec.kind) {
      case Kind::kByteLevel:
        // It joins all tokens into bytes; what follows it would see one text.
        decoder.form_ = Form::kByteLevel;
        fused = true;
        continue;
      case Kind::kSentencePiece:
        decoder.form_ = Form::kSentencePiece;
        decoder.steps_ = {spec};
        return decoder;
      case Kind::kFuse:
        fused = true;
        continue;
      case Kind::kByteFallback:
        decoder.byte_fallback_ = true;
        continue;
      default:
        break;
    }
    if (spec.content.empty() && spec.kind == Kind::kStrip) continue;
    if (!fused) {
      decoder.steps_.push_back(spec);
    } else if (spec.kind == Kind::kStrip && spec.stop == 0 && decoder.fused_.empty()) {
      decoder.fused_.push_back(spec);
    } else {
      return fail(ErrorCode::kUnsupported,
                  "{}: after tokens are joined the decoder may only strip the beginning", where);
    }
  }
  if (decoder.form_ != Form::kByteLevel && !specs.empty()) decoder.form_ = Form::kSteps;
  return decoder;
}

void TokenDecoder::next(std::string_view token, bool unknown, DecodeState& state,
                        std::string& text) const {
  switch (form_) {
    case Form::kJoinedBySpace:
      if (!state.first) text += ' ';
      text += token;
      break;
    case Form::kByteLevel:
      hold_and_append(bytes(token), state, text);
      break;
    case Form::kSentencePiece:
      sentencepiece(token, unknown, state, text);
      return;
    case Form::kSteps: {
      std::string piece(token);
      for (const DecoderSpec& step : steps_) {
        switch (step.kind) {
          case DecoderSpec::Kind::kReplace:
            piece = replace_all(piece, step.pattern, step.content);
            break;
          case DecoderSpec::Kind::kStrip:
            piece = strip(piece, step);
            break;
          case DecoderSpec::Kind::kMetaspace: {
            const bool drop = state.first && step.prepend != PrependScheme::kNever;
            piece = replace_all(piece, step.content, drop ? "" : " ");
            break;
          }
          case DecoderSpec::Kind::kWordPiece:
            if (!state.first) {
              if (piece.starts_with(step.content)) {
                piece.erase(0, step.content.size());
              } else {
                piece.insert(0, " ");
              }
            }
            if (step.cleanup) piece = clean_up(std::move(piece));
            break;
          default:
            break;
        }
      }
      const int byte = byte_fallback_ ? byte_of_fallback_token(piece) : -1;
      if (byte >= 0) {
        state.held += static_cast<char>(byte);
      } else {
        flush_bytes(state, text);
        append(piece, state, text);
      }
      break;
    }
  }
  state.first = false;
}

void TokenDecoder::end(DecodeState& state, std::string& text) const {
  if (form_ == Form::kByteLevel) {
    append(replace_invalid_utf8(state.held), state, text);
    state.held.clear();
  } else {
    flush_bytes(state, text);
  }
}

// Byte-level: what is held plus `bytes`, up to an unfinished character.
void TokenDecoder::hold_and_append(std::string_view bytes, DecodeState& state,
                                   std::string& text) const {
  state.held += bytes;
  const std::size_t complete = complete_utf8_prefix(state.held);
  append(replace_invalid_utf8(std::string_view(state.held).substr(0, complete)), state, text);
  state.held.erase(0, complete);
}

// A run of byte tokens: `tokenizers` takes it as a whole or replaces every byte;
// sentencepiece decides character by character.
void TokenDecoder::flush_bytes(DecodeState& state, std::string& text) const {
  if (state.held.empty()) return;
  std::string run;
  if (form_ == Form::kSentencePiece) {
    for (std::size_t at = 0; at < state.held.size();) {
      const CodePoint point = decode_utf8(state.held, at);
      if (point.valid) {
        run.append(state.held, at, point.length);
        at += point.length;
      } else {
        run += kReplacementUtf8;
        at += 1;
      }
    }
  } else if (is_valid_utf8(state.held)) {
    run = state.held;
  } else {
    for (std::size_t i = 0; i < state.held.size(); ++i) run += kReplacementUtf8;
  }
  state.held.clear();
  append(run, state, text);
}

void TokenDecoder::append(std::string_view piece, DecodeState& state, std::string& text) const {
  if (!fused_.empty() && !state.strip_done) {
    const DecoderSpec& step = fused_.front();
    while (state.stripped < step.start && piece.starts_with(step.content)) {
      piece.remove_prefix(step.content.size());
      ++state.stripped;
    }
    if (!piece.empty() || state.stripped >= step.start) state.strip_done = true;
  }
  text += piece;
}

// After sentencepiece's SentencePieceProcessor::Decode: the dummy prefix of the
// first visible piece is taken off.
void TokenDecoder::sentencepiece(std::string_view token, bool unknown, DecodeState& state,
                                 std::string& text) const {
  const DecoderSpec& spec = steps_.front();
  if (const int byte = byte_of_fallback_token(token); byte >= 0) {
    state.held += static_cast<char>(byte);
    state.first = false;
    return;
  }
  flush_bytes(state, text);
  if (unknown) {
    text += " \u2047 ";
    state.first = false;
    return;
  }
  bool took_space = false;
  if (state.first && (spec.strip_space || spec.strip_every_space)) {
    took_space = token.starts_with(kSpaceSymbol);
    if (took_space) token.remove_prefix(kSpaceSymbol.size());
    if (spec.strip_every_space) took_space = false;
  }
  const std::string piece = replace_all(token, kSpaceSymbol, " ");
  text += piece;
  if (took_space || !piece.empty()) state.first = false;
}

std::string TokenDecoder::bytes(std::string_view token) const {
  if (form_ == Form::kByteLevel) {
    std::optional<std::string> bytes = alphabet_to_bytes(token);
    return bytes ? std::move(*bytes) : std::string(token);
  }
  if (byte_fallback_ || form_ == Form::kSentencePiece) {
    if (const int byte = byte_of_fallback_token(token); byte >= 0) {
      return std::string(1, static_cast<char>(byte));
    }
  }
  std::string text(token);
  for (const DecoderSpec& step : steps_) {
    if (step.kind == DecoderSpec::Kind::kReplace) {
      text = replace_all(text, step.pattern, step.content);
    } else if (step.kind == DecoderSpec::Kind::kMetaspace) {
      text = replace_all(text, step.content, " ");
    } else if (step.kind == DecoderSpec::Kind::kSentencePiece) {
      text = replace_all(text, kSpaceSymbol, " ");
    }
  }
  return text;
}

}  // namespace weft::model
