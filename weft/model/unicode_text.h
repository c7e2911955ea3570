// UTF-8 and the character classes that tokenizer patterns are written in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft::model {

inline constexpr char32_t kReplacement = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

struct CodePoint {
  char32_t value;       // kReplacement when invalid
  std::uint8_t length;  // bytes read, at least 1
  bool valid;
};

// The code point at text[at] (at < text.size()). Invalid bytes give U+FFFD with
// the length of the maximal subpart of an ill-formed sequence (Unicode 15,
// section 3.9), which is how Python and Rust replace them.
CodePoint decode_utf8(std::string_view text, std::size_t at);
void append_utf8(std::string& text, char32_t value);
bool is_valid_utf8(std::string_view text);
// One U+FFFD for each maximal invalid subpart.
std::string replace_invalid_utf8(std::string_view text);
// The length of the longest prefix that does not end inside a character that
// later bytes could complete.
std::size_t complete_utf8_prefix(std::string_view text);

// General categories as bits; a code point may have kSpace besides another.
enum CharClass : std::uint8_t {
  kLetter = 1,       // L
  kNumber = 2,       // N
  kSpace = 4,        // the White_Space property, as \s in Oniguruma and Rust
  kPunctuation = 8,  // P
  kSymbol = 16,      // S
  kMark = 32,        // M
  kDecimal = 64,     // Nd
};

namespace detail {
inline constexpr char32_t kClassTableSize = 0x20000;
const std::uint8_t* class_table();
std::uint8_t class_beyond_table(char32_t value);
}  // namespace detail

// Reads classes without the cost of finding the table each time.
class CharClasses {
 public:
  CharClasses() : table_(detail::class_table()) {}
  std::uint8_t operator()(char32_t value) const {
    return value < detail::kClassTableSize ? table_[value] : detail::class_beyond_table(value);
  }

 private:
  const std::uint8_t* table_;
};

}  // namespace weft::model
