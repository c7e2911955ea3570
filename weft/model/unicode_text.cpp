#include "weft/model/unicode_text.h"

#include <utf8proc.h>

#include <cstring>
#include <vector>

namespace weft::model {

CodePoint decode_utf8(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return {lead, 1, true};
  // Length and the range of the second byte, after table 3-7 of Unicode 15.
  int length = 0;
  unsigned char low = 0x80, high = 0xBF;
  char32_t value = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    value = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    value = lead & 0x0F;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    value = lead & 0x07;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {kReplacement, 1, false};
  }
  for (int i = 1; i < length; ++i) {
    if (at + i >= text.size()) return {kReplacement, static_cast<std::uint8_t>(i), false};
    const unsigned char next = byte(at + i);
    if (next < low || next > high) return {kReplacement, static_cast<std::uint8_t>(i), false};
    value = value << 6 | (next & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {value, static_cast<std::uint8_t>(length), true};
}

void append_utf8(std::string& text, char32_t value) {
  if (value < 0x80) {
    text += static_cast<char>(value);
  } else if (value < 0x800) {
    text += static_cast<char>(0xC0 | value >> 6);
    text += static_cast<char>(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    text += static_cast<char>(0xE0 | value >> 12);
    text += static_cast<char>(0x80 | (value >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (value & 0x3F));
  } else {
    text += static_cast<char>(0xF0 | value >> 18);
    text += static_cast<char>(0x80 | (value >> 12 & 0x3F));
    text += static_cast<char>(0x80 | (value >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (value & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (at + 8 <= text.size()) {
      std::uint64_t word;
      std::memcpy(&word, text.data() + at, 8);
      if ((word & 0x8080808080808080ULL) == 0) {
        at += 8;
        continue;
      }
    }
    const CodePoint point = decode_utf8(text, at);
    if (!point.valid) return false;
    at += point.length;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (point.valid) {
      out.append(text, at, point.length);
    } else {
      out += kReplacementUtf8;
    }
    at += point.length;
  }
  return out;
}

std::size_t complete_utf8_prefix(std::string_view text) {
  // Only the last three bytes can belong to an unfinished character.
  const std::size_t first = text.size() < 3 ? 0 : text.size() - 3;
  for (std::size_t at = first; at < text.size(); ++at) {
    if (static_cast<unsigned char>(text[at]) < 0xC0) continue;
    const CodePoint point = decode_utf8(text, at);
    if (!point.valid && at + point.length == text.size() &&
        decode_utf8(std::string(text.substr(at)) + '\xBF', 0).length > point.length) {
      return at;
    }
    // Some second bytes allow only the low half of the continuation range.
    if (!point.valid && at + point.length == text.size() &&
        decode_utf8(std::string(text.substr(at)) + '\x80', 0).length > point.length) {
      return at;
    }
  }
  return text.size();
}

namespace detail {
namespace {

bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::uint8_t classify(char32_t c) {
  std::uint8_t bits = is_white_space(c) ? kSpace : 0;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return bits | kLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return bits | kMark;
    case UTF8PROC_CATEGORY_ND:
      return bits | kNumber | kDecimal;
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return bits | kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return bits | kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return bits | kSymbol;
    default:
      return bits;
  }
}

}  // namespace

const std::uint8_t* class_table() {
  static const std::vector<std::uint8_t> table = [] {
    std::vector<std::uint8_t> classes(kClassTableSize);
    for (char32_t c = 0; c < kClassTableSize; ++c) classes[c] = classify(c);
    return classes;
  }();
  return table.data();
}

std::uint8_t class_beyond_table(char32_t value) { return value <= 0x10FFFF ? classify(value) : 0; }

}  // namespace detail
}  // namespace weft::model
