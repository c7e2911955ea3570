#include "weft/model/word_piece.h"

#include "weft/model/unicode_text.h"

namespace weft::model {

WordPieceModel WordPieceModel::make(const ModelSpec& spec) {
  WordPieceModel model;
  model.unk_ = spec.unk;
  model.max_characters_ = spec.max_word_characters;
  std::vector<std::pair<std::string_view, std::int32_t>> first, following;
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string_view text = spec.tokens[id];
    first.emplace_back(text, static_cast<std::int32_t>(id));
    if (text.starts_with(spec.continuing_prefix)) {
      following.emplace_back(text.substr(spec.continuing_prefix.size()),
                             static_cast<std::int32_t>(id));
    }
  }
  model.first_ = ByteTrie(std::move(first));
  model.following_ = ByteTrie(std::move(following));
  return model;
}

void WordPieceModel::encode(std::string_view word, std::vector<TokenId>& ids) const {
  std::int64_t characters = 0;
  for (const char byte : word) characters += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  const std::size_t before = ids.size();
  std::size_t at = 0;
  while (at < word.size() && characters <= max_characters_) {
    std::int32_t id = 0;
    const std::size_t length = (at == 0 ? first_ : following_).longest(word, at, id);
    if (length == 0) break;
    ids.push_back(id);
    at += length;
  }
  if (at == word.size()) return;
  ids.resize(before);
  if (unk_ >= 0) ids.push_back(unk_);
}

}  // namespace weft::model
