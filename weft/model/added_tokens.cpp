#include "weft/model/added_tokens.h"

#include <algorithm>

#include "weft/model/unicode_text.h"

namespace weft::model {
namespace {

bool is_word_character(char32_t c) {
  return c == '_' || (CharClasses()(c) & (kLetter | kNumber | kMark)) != 0;
}

CodePoint last_character(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && end - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return decode_utf8(text, at);
}

bool is_white(char32_t c) { return (CharClasses()(c) & kSpace) != 0; }

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedTokenSpec> specs,
                         const std::vector<std::string>& contents)
    : specs_(std::move(specs)) {
  std::vector<std::pair<std::string_view, std::int32_t>> entries;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    entries.emplace_back(contents[i], static_cast<std::int32_t>(i));
  }
  trie_ = ByteTrie(std::move(entries));
}

bool AddedTokens::find(std::string_view text, std::size_t at, std::size_t free_from,
                       bool parse_special, Found& found) const {
  for (; at < text.size(); ++at) {
    if (!trie_.starts(static_cast<unsigned char>(text[at]))) continue;
    std::size_t length = 0;
    std::int32_t index = -1;
    trie_.prefixes(text, at, [&](std::size_t size, std::int32_t value) {
      if (specs_[value].special && !parse_special) return;
      length = size;
      index = value;
    });
    if (index < 0) continue;
    const AddedTokenSpec& spec = specs_[index];
    const std::size_t stop = at + length;
    if (spec.single_word) {
      const bool inside = (at > 0 && is_word_character(last_character(text, at).value)) ||
                          (stop < text.size() && is_word_character(decode_utf8(text, stop).value));
      if (inside) {
        at = stop - 1;
        continue;
      }
    }
    found = {at, stop, stop, index};
    if (spec.lstrip) {
      while (found.begin > free_from) {
        const CodePoint c = last_character(text, found.begin);
        if (!is_white(c.value)) break;
        found.begin -= c.length;
      }
    }
    found.begin = std::max(found.begin, free_from);
    if (spec.rstrip) {
      while (found.end < text.size()) {
        const CodePoint c = decode_utf8(text, found.end);
        if (!is_white(c.value)) break;
        found.end += c.length;
      }
      found.resume = found.end;
    }
    return true;
  }
  return false;
}

}  // namespace weft::model
