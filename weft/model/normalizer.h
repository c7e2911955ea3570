// The steps that change a text before it is cut into words.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/model/byte_trie.h"
#include "weft/model/split_pattern.h"
#include "weft/model/tokenizer_spec.h"

namespace weft::model {

// sentencepiece's compiled character map: a double-array trie (darts-clone's
// layout) from prefixes to replacement texts. Checked for bounds at every step.
class CharacterMap {
 public:
  static Result<CharacterMap> parse(std::string_view blob, std::string_view where);
  bool empty() const { return trie_.empty(); }
  // The longest (or shortest) mapped prefix of text[at..]: its length (0 = none) and
  // replacement.
  std::size_t find(std::string_view text, std::size_t at, bool longest,
                   std::string_view& replacement) const;

 private:
  std::vector<std::uint32_t> trie_;
  std::string texts_;  // NUL-terminated
};

// Immutable; may be used from many threads.
class Normalizer {
 public:
  // `user_defined`: sentencepiece's symbols, which its normaliser leaves alone.
  static Result<Normalizer> make(const std::vector<NormalizerSpec>& specs,
                                 std::vector<std::string> user_defined, std::string_view where);
  bool empty() const { return steps_.empty(); }
  // `text` is valid UTF-8, except that sentencepiece's normaliser takes any bytes.
  std::string apply(std::string_view text) const;

 private:
  struct Step {
    NormalizerSpec spec;
    std::shared_ptr<const SplitPattern> pattern;
    std::shared_ptr<const CharacterMap> map;
  };
  std::string sentencepiece(const Step& step, std::string_view text) const;

  std::vector<Step> steps_;
  ByteTrie user_defined_;
};

bool is_punctuation(char32_t c);  // ASCII punctuation and symbols, and P

}  // namespace weft::model
