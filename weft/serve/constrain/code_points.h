// CodePoints: a set of Unicode scalar values, and its spelling in UTF-8.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft::serve::constrain {

// Ascending, disjoint, not touching; surrogates are never in it. A plain value.
class CodePoints {
 public:
  static constexpr char32_t kLast = 0x10FFFF;

  CodePoints() = default;
  static CodePoints all();
  static CodePoints of(std::u32string_view each);

  void add(char32_t first, char32_t last);  // first <= last; surrogates are left out
  void add(const CodePoints& other);
  CodePoints complement() const;
  CodePoints without(const CodePoints& other) const;
  bool contains(char32_t c) const;
  bool empty() const { return ranges_.empty(); }
  std::span<const std::pair<char32_t, char32_t>> ranges() const { return ranges_; }

 private:
  std::vector<std::pair<char32_t, char32_t>> ranges_;
};

// One run of byte ranges: all strings whose byte i lies in `bytes[i]`, i < length.
struct ByteRun {
  int length = 0;
  std::array<std::pair<std::uint8_t, std::uint8_t>, 4> bytes{};
};
// The UTF-8 spellings of a set, as runs (at most ten for each range of the set).
std::vector<ByteRun> utf8_runs(const CodePoints& set);

void append_utf8(char32_t c, std::string& out);
// The next character of `text`, which it is taken off; U+FFFFFFFF if the bytes there
// are no UTF-8 (nothing is taken off then). `text` must not be empty.
char32_t take_utf8(std::string_view& text);

}  // namespace weft::serve::constrain
