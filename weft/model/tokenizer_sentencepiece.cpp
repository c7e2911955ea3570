// Reads a sentencepiece .model: a protobuf message (google/sentencepiece,
// src/sentencepiece_model.proto), of which only the fields below matter here.
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "weft/model/tokenizer_spec.h"
#include "weft/model/unicode_text.h"

namespace weft::model {
namespace {

// One protobuf message, read field by field. Every length is checked.
class ProtoReader {
 public:
  struct Field {
    std::uint32_t number = 0;
    std::uint64_t integer = 0;  // varint, or the bits of a fixed value
    std::string_view bytes;     // length-delimited
    bool is_bytes = false;
  };

  explicit ProtoReader(std::string_view message) : rest_(message) {}

  // False at the end; nullopt when the bytes are not a message.
  std::optional<bool> next(Field& field) {
    if (rest_.empty()) return false;
    std::uint64_t tag = 0;
    if (!varint(tag) || tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF) return std::nullopt;
    field = {};
    field.number = static_cast<std::uint32_t>(tag >> 3);
    switch (tag & 7) {
      case 0:
        if (!varint(field.integer)) return std::nullopt;
        return true;
      case 1:
        return fixed(field, 8);
      case 2: {
        std::uint64_t length = 0;
        if (!varint(length) || length > rest_.size()) return std::nullopt;
        field.bytes = rest_.substr(0, length);
        field.is_bytes = true;
        rest_.remove_prefix(length);
        return true;
      }
      case 5:
        return fixed(field, 4);
      default:
        return std::nullopt;
    }
  }

 private:
  bool varint(std::uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  std::optional<bool> fixed(Field& field, std::size_t size) {
    if (rest_.size() < size) return std::nullopt;
    std::memcpy(&field.integer, rest_.data(), size);
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_;
};

float float_of(const ProtoReader::Field& field) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(field.integer));
}

enum PieceType : std::uint64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct Piece {
  std::string text;
  float score = 0;
  std::uint64_t type = kNormal;
};

struct SentencePieceModel {
  std::vector<Piece> pieces;
  std::uint64_t model_type = 1;  // unigram, 2 BPE, 3 word, 4 char
  bool byte_fallback = false, space_as_suffix = false;
  std::int64_t unk = 0, bos = 1, eos = 2;
  NormalizerSpec normalizer{.kind = NormalizerSpec::Kind::kSentencePiece};
};

// Calls visit(field) for each field of `message`; false when it is malformed.
template <class Visit>
bool each_field(std::string_view message, Visit visit) {
  ProtoReader reader(message);
  ProtoReader::Field field;
  for (;;) {
    const std::optional<bool> more = reader.next(field);
    if (!more) return false;
    if (!*more) return true;
    visit(field);
  }
}

Result<SentencePieceModel> parse(std::string_view bytes, std::string_view file) {
  SentencePieceModel model;
  bool good = true;
  good &= each_field(bytes, [&](const ProtoReader::Field& field) {
    if (!field.is_bytes) return;
    if (field.number == 1) {
      Piece piece;
      good &= each_field(field.bytes, [&](const ProtoReader::Field& part) {
        if (part.number == 1 && part.is_bytes) piece.text = part.bytes;
        if (part.number == 2) piece.score = float_of(part);
        if (part.number == 3) piece.type = part.integer;
      });
      model.pieces.push_back(std::move(piece));
    } else if (field.number == 2) {  // trainer_spec
      good &= each_field(field.bytes, [&](const ProtoReader::Field& part) {
        const auto id = static_cast<std::int32_t>(part.integer);
        if (part.number == 3) model.model_type = part.integer;
        if (part.number == 24) model.space_as_suffix = part.integer != 0;
        if (part.number == 35) model.byte_fallback = part.integer != 0;
        if (part.number == 40) model.unk = id;
        if (part.number == 41) model.bos = id;
        if (part.number == 42) model.eos = id;
      });
    } else if (field.number == 3) {  // normalizer_spec
      good &= each_field(field.bytes, [&](const ProtoReader::Field& part) {
        if (part.number == 2 && part.is_bytes) model.normalizer.content = part.bytes;
        if (part.number == 3) model.normalizer.add_dummy_prefix = part.integer != 0;
        if (part.number == 4) model.normalizer.remove_extra_spaces = part.integer != 0;
        if (part.number == 5) model.normalizer.escape_spaces = part.integer != 0;
      });
    }
  });
  if (!good || model.pieces.empty()) {
    return fail(ErrorCode::kCorrupt, "{}: not a sentencepiece model{}", file,
                good ? " (it has no pieces)" : " (its protobuf message is malformed)");
  }
  model.normalizer.space_as_suffix = model.space_as_suffix;
  return model;
}

}  // namespace

Result<TokenizerSpec> spec_from_sentencepiece(std::string_view bytes, std::string_view file) {
  WEFT_ASSIGN(SentencePieceModel model, parse(bytes, file));
  TokenizerSpec spec;
  if (model.model_type != 1 && model.model_type != 2) {
    return fail(ErrorCode::kUnsupported,
                "{}: sentencepiece model type {} is not read; unigram (1) and BPE (2) are", file,
                model.model_type);
  }
  const bool bpe = model.model_type == 2;
  spec.kind = bpe ? "sentencepiece-bpe" : "sentencepiece-unigram";
  spec.model.kind = bpe ? ModelKind::kBpe : ModelKind::kUnigram;
  spec.model.by_score = bpe;
  spec.model.float_sums = true;
  spec.model.byte_fallback = model.byte_fallback;
  spec.model.fuse_unk = true;
  const auto size = static_cast<std::int64_t>(model.pieces.size());
  for (std::int64_t i = 0; i < size; ++i) {
    Piece& piece = model.pieces[i];
    const auto id = static_cast<TokenId>(i);
    if (!std::isfinite(piece.score)) {
      return fail(ErrorCode::kCorrupt, "{}: the score of piece {} is not a number", file, i);
    }
    if (!is_valid_utf8(piece.text) || piece.text.empty()) {
      return fail(ErrorCode::kCorrupt, "{}: piece {} is not UTF-8 text", file, i);
    }
    spec.model.unmergeable.push_back(piece.type != kNormal && piece.type != kUserDefined);
    if (piece.type == kUnknown) spec.model.unk = id;
    // "<unk>" in a text is text: only control pieces are found there, when asked.
    if (piece.type == kControl) spec.added.push_back({.id = id, .content = piece.text});
    if (piece.type == kUserDefined) spec.model.user_defined.push_back(id);
    spec.model.scores.push_back(piece.score);
    spec.model.tokens.push_back(std::move(piece.text));
  }
  spec.decoders = {{.kind = DecoderSpec::Kind::kSentencePiece,
                    .strip_space = model.normalizer.add_dummy_prefix,
                    .strip_every_space = model.normalizer.remove_extra_spaces}};
  spec.normalizers = {std::move(model.normalizer)};
  spec.keeps_invalid_bytes = true;
  const auto is_control = [&](std::int64_t id) {
    return id >= 0 && id < size && model.pieces[id].type == kControl;
  };
  if (is_control(model.bos)) {
    spec.bos = static_cast<TokenId>(model.bos);
    spec.prefix = {spec.bos};
  }
  if (is_control(model.eos)) spec.eos = {static_cast<TokenId>(model.eos)};
  return spec;
}

Result<std::shared_ptr<const Tokenizer>> tokenizer_from_sentencepiece(std::string_view bytes,
                                                                      std::string_view file) {
  WEFT_ASSIGN(TokenizerSpec spec, spec_from_sentencepiece(bytes, file));
  return make_tokenizer(std::move(spec), file);
}

}  // namespace weft::model
