// Scanners written by hand for the word patterns of well-known vocabularies.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "weft/model/unicode_text.h"

namespace weft::model {

enum class ScannerKind {
  kGpt2,           // GPT-2's pattern; also with its last alternative left out
  kCl100kDigits3,  // Llama 3, DBRX, GPT-4: \p{N}{1,3}, contractions in any case
  kCl100kDigits1,  // Qwen2, StableLM 2: \p{N}
  kDeepseek,       // DeepSeek V3's third pattern
  kDeepseekCjk,    // [一-龥぀-ゟ゠-ヿ]+
  kNumber,         // \p{N}
  kNumberUpTo3,    // \p{N}{1,3}
  kNumberRun,      // \p{N}+
  kLineBreak,      // [\r\n]
};

struct WordScanner {
  ScannerKind kind;
  bool long_s = false;  // contractions under (?i:) also take U+017F for s
};

// The scanner of a pattern, if it is one of the known ones (spelled exactly).
std::optional<WordScanner> scanner_of(std::string_view expression);

// The first match at or after `from`; false when there is none. `text` is valid UTF-8.
bool scan_word(const WordScanner& scanner, const CharClasses& classes, std::string_view text,
               std::size_t from, std::size_t& begin, std::size_t& end);

}  // namespace weft::model
