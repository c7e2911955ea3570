// How byte-level vocabularies in GGUF files cut words: llama.cpp's names
// (tokenizer.ggml.pre), read and written.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "weft/model/tokenizer_spec.h"

namespace weft::model {

struct WordPatterns {
  std::string_view name;
  std::vector<std::string_view> patterns;  // in order, matches and gaps both kept
  bool ignore_merges = false;
  bool add_bos = false;  // unless the file says otherwise
};

// Null when the name is not known; "default" stands for "gpt-2".
const WordPatterns* find_word_patterns(std::string_view name);

// The name whose patterns cut words as `spec`'s pre-tokenizers do and that merges as
// its model does; nullopt when there is none. Spellings of one pattern count as equal:
// Digits as \p{N}, ByteLevel's own regular expression as a Split by it, and (as in
// llama.cpp) contractions that ignore case with and without the long s (U+017F).
std::optional<std::string_view> word_patterns_name(const TokenizerSpec& spec);

}  // namespace weft::model
