// GPT-2's byte alphabet: printable Latin-1 bytes stand for themselves, the other
// 68 are moved to U+0100 and up (openai/gpt-2, encoder.py, bytes_to_unicode).
#include <array>

#include "weft/base/hex.h"
#include "weft/model/tokenizer_spec.h"
#include "weft/model/unicode_text.h"

namespace weft::model {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

constexpr std::array<char32_t, 256> make_alphabet() {
  std::array<char32_t, 256> alphabet{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    alphabet[byte] = stands_for_itself(byte) ? byte : next++;
  }
  return alphabet;
}

constexpr std::array<char32_t, 256> kAlphabet = make_alphabet();
constexpr char32_t kAlphabetEnd = 0x100 + 68;

constexpr std::array<std::int16_t, kAlphabetEnd> make_bytes() {
  std::array<std::int16_t, kAlphabetEnd> bytes{};
  bytes.fill(-1);
  for (unsigned byte = 0; byte < 256; ++byte) {
    bytes[kAlphabet[byte]] = static_cast<std::int16_t>(byte);
  }
  return bytes;
}

constexpr std::array<std::int16_t, kAlphabetEnd> kBytes = make_bytes();

}  // namespace

const std::string& byte_character(unsigned char byte) {
  static const std::array<std::string, 256> characters = [] {
    std::array<std::string, 256> made;
    for (unsigned i = 0; i < 256; ++i) append_utf8(made[i], kAlphabet[i]);
    return made;
  }();
  return characters[byte];
}

int character_byte(char32_t character) { return character < kAlphabetEnd ? kBytes[character] : -1; }

std::string bytes_to_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 2);
  for (const char byte : bytes) out += byte_character(static_cast<unsigned char>(byte));
  return out;
}

std::optional<std::string> alphabet_to_bytes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    const int byte = point.valid ? character_byte(point.value) : -1;
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
    at += point.length;
  }
  return out;
}

int byte_of_fallback_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = hex_digit(c);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace weft::model
