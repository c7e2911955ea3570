// Tokens that are found in the text as they stand, before it is cut into words.
#pragma once

#include <string_view>
#include <vector>

#include "weft/model/byte_trie.h"
#include "weft/model/tokenizer_spec.h"

namespace weft::model {

class AddedTokens {
 public:
  AddedTokens() = default;
  // Of `specs` those with `normalized` as given; `contents` are their texts as they
  // appear (normalised where the search runs on normalised text).
  AddedTokens(std::vector<AddedTokenSpec> specs, const std::vector<std::string>& contents);

  bool empty() const { return trie_.empty(); }

  // Cuts `text`: calls text(begin, end) and token(id) in order. Special ones count
  // only when `parse_special`.
  template <class OnText, class OnToken>
  void split(std::string_view text, bool parse_special, OnText on_text, OnToken on_token) const {
    std::size_t begin = 0;
    Found found;
    for (std::size_t at = 0; find(text, at, begin, parse_special, found);) {
      if (found.begin > begin) on_text(begin, found.begin);
      on_token(specs_[found.index].id);
      begin = found.end;
      at = found.resume;
    }
    if (begin < text.size()) on_text(begin, text.size());
  }

 private:
  struct Found {
    std::size_t begin, end, resume;
    std::int32_t index;
  };
  bool find(std::string_view text, std::size_t at, std::size_t free_from, bool parse_special,
            Found& found) const;

  std::vector<AddedTokenSpec> specs_;
  ByteTrie trie_;
};

}  // namespace weft::model
