// Unigram language model: the most probable way to cut a text into pieces (Kudo
// 2018, arXiv:1804.10959), by Viterbi over the pieces that match at each character.
#pragma once

#include <string_view>
#include <vector>

#include "weft/model/bpe.h"
#include "weft/model/byte_trie.h"
#include "weft/model/tokenizer_spec.h"

namespace weft::model {

// Immutable; may be used from many threads.
class UnigramModel {
 public:
  static Result<UnigramModel> make(const ModelSpec& spec, const BpeModel::Vocabulary& vocabulary,
                                   std::string_view where);
  void encode(std::string_view word, std::vector<TokenId>& ids) const;

 private:
  template <class Score>
  void encode_with(std::string_view word, std::vector<TokenId>& ids) const;

  ByteTrie pieces_;
  std::vector<double> scores_;
  std::vector<bool> user_defined_;
  double lowest_ = 0, highest_ = 0;
  TokenId unk_ = -1;
  bool byte_fallback_ = false, float_sums_ = false;
  std::array<TokenId, 256> byte_token_{};
};

}  // namespace weft::model
