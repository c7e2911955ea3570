// WordPiece: the longest token first, from the left (Devlin et al. 2018,
// arXiv:1810.04805; google-research/bert, tokenization.py).
#pragma once

#include <string_view>
#include <vector>

#include "weft/model/byte_trie.h"
#include "weft/model/tokenizer_spec.h"

namespace weft::model {

// Immutable; may be used from many threads.
class WordPieceModel {
 public:
  static WordPieceModel make(const ModelSpec& spec);
  // A word that cannot be spelled is the unknown token.
  void encode(std::string_view word, std::vector<TokenId>& ids) const;

 private:
  ByteTrie first_, following_;
  TokenId unk_ = -1;
  std::int64_t max_characters_ = 100;
};

}  // namespace weft::model
