#include "weft/model/word_scanner.h"

#include <array>
#include <utility>

namespace weft::model {
namespace {

struct Known {
  std::string_view expression;
  WordScanner scanner;
};

// Each entry is the pattern as published: in tokenizer.json files, in tiktoken,
// or as llama.cpp spells it for a `tokenizer.ggml.pre` name.
constexpr std::array kKnown = {
    Known{R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
          {ScannerKind::kGpt2}},
    Known{R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
          {ScannerKind::kGpt2}},
    Known{
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        {ScannerKind::kCl100kDigits3, true}},
    Known{
        R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        {ScannerKind::kCl100kDigits3}},
    Known{
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        {ScannerKind::kCl100kDigits1, true}},
    Known{
        R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        {ScannerKind::kCl100kDigits1}},
    Known{"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
          "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
          {ScannerKind::kDeepseek}},
    Known{"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", {ScannerKind::kDeepseekCjk}},
    Known{"\\p{N}", {ScannerKind::kNumber}},
    Known{"\\p{N}{1,3}", {ScannerKind::kNumberUpTo3}},
    Known{"\\p{N}+", {ScannerKind::kNumberRun}},
    Known{"[\r\n]", {ScannerKind::kLineBreak}},
};

constexpr std::uint8_t kWordlike = kLetter | kNumber;

// A position in valid UTF-8 text.
struct Cursor {
  const CharClasses& classes;
  std::string_view text;

  struct Char {
    char32_t value = 0;
    std::uint8_t bits = 0;
    std::uint8_t length = 0;  // 0 = the end of the text
  };

  Char at(std::size_t position) const {
    if (position >= text.size()) return {};
    const auto byte = static_cast<unsigned char>(text[position]);
    if (byte < 0x80) return {byte, classes(byte), 1};
    const CodePoint point = decode_utf8(text, position);
    return {point.value, classes(point.value), point.length};
  }

  // The end of the run of characters from `position` that have (or, with
  // `wanted` = false, lack) any of `bits`.
  template <bool wanted>
  std::size_t run(std::size_t position, std::uint8_t bits) const {
    for (;;) {
      const Char c = at(position);
      if (c.length == 0 || ((c.bits & bits) != 0) != wanted) return position;
      position += c.length;
    }
  }

  std::size_t line_breaks(std::size_t position) const {
    while (position < text.size() && (text[position] == '\r' || text[position] == '\n')) ++position;
    return position;
  }

  // \s*[\r\n]+ (when `breaks`), then \s+(?!\S), then \s+, from a white space.
  std::size_t white_space(std::size_t position, bool breaks) const {
    std::size_t end = position, last = position, after_break = 0;
    for (;;) {
      const Char c = at(end);
      if ((c.bits & kSpace) == 0) break;  // the end has no bits
      last = end;
      end += c.length;
      if (c.value == '\r' || c.value == '\n') after_break = end;
    }
    if (breaks && after_break != 0) return after_break;
    if (end == text.size() || last == position) return end;
    return last;
  }

  // The length of a contraction after an apostrophe at `position`, or 0.
  std::size_t contraction(std::size_t position, bool any_case, bool long_s) const {
    const auto letter = [&](std::size_t i) -> char {
      if (i >= text.size()) return 0;
      const char c = text[i];
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    const char first = letter(position + 1);
    switch (first) {
      case 's':
      case 't':
      case 'm':
      case 'd':
        return 2;
      case 'r':
      case 'v':
        return letter(position + 2) == 'e' ? 3 : 0;
      case 'l':
        return letter(position + 2) == 'l' ? 3 : 0;
      default:
        return long_s && text.substr(position + 1, 2) == "\u017f" ? 3 : 0;
    }
  }
};

std::size_t match_gpt2(const Cursor& cursor, std::size_t from) {
  const Cursor::Char first = cursor.at(from);
  if (first.value == '\'') {
    if (const std::size_t length = cursor.contraction(from, false, false)) return from + length;
  }
  std::size_t position = from;
  Cursor::Char c = first;
  if (first.value == ' ') {
    position += 1;
    c = cursor.at(position);
  }
  if (c.length == 0 || (c.bits & kSpace) != 0) return cursor.white_space(from, false);
  position += c.length;
  if (c.bits & kLetter) return cursor.run<true>(position, kLetter);
  if (c.bits & kNumber) return cursor.run<true>(position, kNumber);
  return cursor.run<false>(position, kSpace | kWordlike);
}

std::size_t match_cl100k(const Cursor& cursor, std::size_t from, int digits, bool long_s) {
  const Cursor::Char first = cursor.at(from);
  if (first.value == '\'') {
    if (const std::size_t length = cursor.contraction(from, true, long_s)) return from + length;
  }
  if (first.bits & kLetter) return cursor.run<true>(from + first.length, kLetter);
  if (first.bits & kNumber) {
    std::size_t end = from + first.length;
    for (int i = 1; i < digits; ++i) {
      const Cursor::Char c = cursor.at(end);
      if ((c.bits & kNumber) == 0) break;
      end += c.length;
    }
    return end;
  }
  const Cursor::Char second = cursor.at(from + first.length);
  const bool line_break = first.value == '\r' || first.value == '\n';
  if (!line_break && (second.bits & kLetter)) {
    return cursor.run<true>(from + first.length + second.length, kLetter);
  }
  const bool skip_space = first.value == ' ';
  const Cursor::Char c = skip_space ? second : first;
  if (c.length != 0 && (c.bits & (kSpace | kWordlike)) == 0) {
    const std::size_t start = from + (skip_space ? 1 : 0) + c.length;
    return cursor.line_breaks(cursor.run<false>(start, kSpace | kWordlike));
  }
  return cursor.white_space(from, true);
}

bool is_ascii_punctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

bool is_ascii_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// 0 when nothing matches at `from`: numbers, controls, unassigned code points.
std::size_t match_deepseek(const Cursor& cursor, std::size_t from) {
  const Cursor::Char first = cursor.at(from);
  const Cursor::Char second = cursor.at(from + first.length);
  if (is_ascii_punctuation(first.value) && is_ascii_letter(second.value)) {
    std::size_t end = from + 2;
    while (is_ascii_letter(cursor.at(end).value)) ++end;
    return end;
  }
  if (first.bits & (kLetter | kMark)) {
    return cursor.run<true>(from + first.length, kLetter | kMark);
  }
  const bool line_break = first.value == '\r' || first.value == '\n';
  if (!line_break && (first.bits & (kPunctuation | kSymbol)) == 0 &&
      (second.bits & (kLetter | kMark)) != 0) {
    return cursor.run<true>(from + first.length + second.length, kLetter | kMark);
  }
  const bool skip_space = first.value == ' ';
  const Cursor::Char c = skip_space ? second : first;
  if (c.bits & (kPunctuation | kSymbol)) {
    const std::size_t start = from + (skip_space ? 1 : 0) + c.length;
    return cursor.line_breaks(cursor.run<true>(start, kPunctuation | kSymbol));
  }
  if (first.bits & kSpace) return cursor.white_space(from, true);
  return 0;
}

bool is_deepseek_cjk(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
}

// Runs of up to `limit` characters for which `in_class` holds.
template <class InClass>
bool find_run(const Cursor& cursor, std::size_t from, int limit, InClass in_class,
              std::size_t& begin, std::size_t& end) {
  for (;;) {
    const Cursor::Char c = cursor.at(from);
    if (c.length == 0) return false;
    if (in_class(c)) break;
    from += c.length;
  }
  begin = from;
  end = from;
  for (int count = 0; limit == 0 || count < limit; ++count) {
    const Cursor::Char c = cursor.at(end);
    if (c.length == 0 || !in_class(c)) break;
    end += c.length;
  }
  return true;
}

}  // namespace

std::optional<WordScanner> scanner_of(std::string_view expression) {
  for (const Known& known : kKnown) {
    if (known.expression == expression) return known.scanner;
  }
  return std::nullopt;
}

bool scan_word(const WordScanner& scanner, const CharClasses& classes, std::string_view text,
               std::size_t from, std::size_t& begin, std::size_t& end) {
  const Cursor cursor{classes, text};
  if (from >= text.size()) return false;
  const auto is_number = [](const Cursor::Char& c) { return (c.bits & kNumber) != 0; };
  switch (scanner.kind) {
    case ScannerKind::kGpt2:
      begin = from;
      end = match_gpt2(cursor, from);
      return true;
    case ScannerKind::kCl100kDigits3:
    case ScannerKind::kCl100kDigits1:
      begin = from;
      end = match_cl100k(cursor, from, scanner.kind == ScannerKind::kCl100kDigits3 ? 3 : 1,
                         scanner.long_s);
      return true;
    case ScannerKind::kDeepseek:
      for (; from < text.size(); from += cursor.at(from).length) {
        if (const std::size_t stop = match_deepseek(cursor, from)) {
          begin = from;
          end = stop;
          return true;
        }
      }
      return false;
    case ScannerKind::kDeepseekCjk:
      return find_run(
          cursor, from, 0, [](const Cursor::Char& c) { return is_deepseek_cjk(c.value); }, begin,
          end);
    case ScannerKind::kNumber:
      return find_run(cursor, from, 1, is_number, begin, end);
    case ScannerKind::kNumberUpTo3:
      return find_run(cursor, from, 3, is_number, begin, end);
    case ScannerKind::kNumberRun:
      return find_run(cursor, from, 0, is_number, begin, end);
    case ScannerKind::kLineBreak:
      return find_run(
          cursor, from, 1, [](const Cursor::Char& c) { return c.value == '\r' || c.value == '\n'; },
          begin, end);
  }
  std::unreachable();
}

}  // namespace weft::model
