// The scanners written by hand against the same patterns in PCRE2.
#include "weft/model/word_scanner.h"

#include <gtest/gtest.h>

#include <random>

#include "weft/model/split_pattern.h"
#include "weft/model/unicode_text.h"

namespace weft::model {
namespace {

const std::vector<std::string>& known_patterns() {
  static const std::vector<std::string> patterns = {
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
      "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
      "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      "\\p{N}",
      "\\p{N}{1,3}",
      "\\p{N}+",
      "[\r\n]",
  };
  return patterns;
}

std::vector<std::pair<std::size_t, std::size_t>> matches(const SplitPattern& pattern,
                                                         std::string_view text) {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  Search search(pattern, text);
  for (PatternMatch match; search.next(match);) found.emplace_back(match.begin, match.end);
  return found;
}

// Characters on which the patterns decide, in runs; sometimes any code point that
// below U+0500, which Unicode 14 (PCRE2 10.42) and 15 (utf8proc) class alike.
std::string random_text(std::mt19937_64& random) {
  static const std::vector<std::string> kPieces = {
      " ", "  ", "\n", "\r", "\t",  "\u00a0", "\u3000", "\u2028", "\x85", "a",      "Z",
      "é", "ſ",  "ß",  "你", "の",  "ー",     "ᄀ",     "0",      "7",    "٣",      "²",
      "Ⅷ", "'",  "'s", "'T", "'rE", "'LL",    "'ve",    "'ſ",     "!",    ".",      "-",
      "_", "。", "$",  "€",  "🙂",  "\u0301", "\u093f", "\u200d", "\x01", "\u00ad", "\ue000"};
  std::string text;
  for (auto i = random() % 24; i > 0; --i) {
    const std::string& piece = kPieces[random() % kPieces.size()];
    for (auto n = 1 + (random() % 4 == 0 ? random() % 5 : 0); n > 0; --n) text += piece;
    if (random() % 16 == 0) append_utf8(text, static_cast<char32_t>(0x20 + random() % 0x4E0));
  }
  return replace_invalid_utf8(text);
}

TEST(WordScanner, CutsLikeThePattern) {
  for (const std::string& expression : known_patterns()) {
    const auto scanner = SplitPattern::regex(expression, "test");
    const auto compiled = SplitPattern::regex(expression, "test", false);
    ASSERT_TRUE(scanner && compiled) << expression;
    ASSERT_TRUE(scanner->is_handwritten()) << expression;
    ASSERT_FALSE(compiled->is_handwritten());
    std::mt19937_64 random(7);
    for (int i = 0; i < 5000; ++i) {
      const std::string text = random_text(random);
      ASSERT_EQ(matches(*scanner, text), matches(*compiled, text)) << expression << "\n"
                                                                   << testing::PrintToString(text);
    }
  }
}

TEST(WordScanner, UnknownPatternsGoToPcre2) {
  const auto pattern = SplitPattern::regex(R"(\w+|[^\w\s]+)", "test");
  ASSERT_TRUE(pattern);
  EXPECT_FALSE(pattern->is_handwritten());
  EXPECT_EQ(matches(*pattern, "ab, c"),
            (std::vector<std::pair<std::size_t, std::size_t>>{{0, 2}, {2, 3}, {4, 5}}));
}

TEST(WordScanner, RefusesAPatternThatDoesNotCompile) {
  const auto pattern = SplitPattern::regex("(", "file.json");
  ASSERT_FALSE(pattern);
  EXPECT_NE(pattern.error().message.find("file.json"), std::string::npos);
}

TEST(WordScanner, HostilePatternsEnd) {
  const auto pattern = SplitPattern::regex("(a+)+$", "test");
  ASSERT_TRUE(pattern);
  (void)matches(*pattern, std::string(5000, 'a') + "b");
}

TEST(UnicodeText, ReplacesEachMaximalInvalidPart) {
  // Unicode 15, table 3-8 and the examples of section 3.9.
  EXPECT_EQ(replace_invalid_utf8("a\xF1\x80\x80\xE1\x80\xC2z"), "a\uFFFD\uFFFD\uFFFDz");
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), "\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(UnicodeText, FindsTheUnfinishedCharacter) {
  const std::string emoji = "x🙂";
  for (std::size_t length = 2; length < emoji.size(); ++length) {
    EXPECT_EQ(complete_utf8_prefix(emoji.substr(0, length)), 1U);
  }
  EXPECT_EQ(complete_utf8_prefix(emoji), emoji.size());
  EXPECT_EQ(complete_utf8_prefix("a\xE0"), 1U);
  EXPECT_EQ(complete_utf8_prefix("a\xF0\x80"), 3U);  // cannot become a character
  EXPECT_EQ(complete_utf8_prefix(""), 0U);
}

}  // namespace
}  // namespace weft::model
