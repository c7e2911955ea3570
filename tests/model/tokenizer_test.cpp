#include "weft/model/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <random>
#include <sstream>

#include "tests/support/data.h"
#include "weft/model/gguf.h"
#include "weft/model/tokenizer_spec.h"
#include "weft/model/unicode_text.h"

namespace weft::model {
namespace {

using Ids = std::vector<TokenId>;

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// A byte-level vocabulary of our own: the 256 bytes and a few merges.
TokenizerSpec small_byte_level() {
  TokenizerSpec spec;
  spec.kind = "bpe";
  spec.model.byte_level = true;
  for (int byte = 0; byte < 256; ++byte) {
    spec.model.tokens.push_back(byte_character(static_cast<unsigned char>(byte)));
  }
  const auto merge = [&](TokenId left, TokenId right) {
    spec.model.merges.emplace_back(left, right);
    spec.model.tokens.push_back(spec.model.tokens[left] + spec.model.tokens[right]);
    return static_cast<TokenId>(spec.model.tokens.size() - 1);
  };
  const TokenId he = merge('h', 'e');
  const TokenId ll = merge('l', 'l');
  const TokenId hell = merge(he, ll);
  merge(hell, 'o');
  merge(' ', 'w');
  for (TokenId id = merge('a', 'a'), i = 0; i < 3; ++i) id = merge(id, id);
  spec.added.push_back({.id = 300, .content = "<end>"});
  spec.added.push_back({.id = 301, .content = "<tag>", .special = false});
  spec.pre_tokenizers = {{.kind = PreTokenizerSpec::Kind::kByteLevel}};
  spec.decoders = {{.kind = DecoderSpec::Kind::kByteLevel}};
  spec.eos = {300};
  return spec;
}

std::shared_ptr<const Tokenizer> make(TokenizerSpec spec) {
  auto made = make_tokenizer(std::move(spec), "test");
  EXPECT_TRUE(made) << made.error().message;
  return *made;
}

std::string random_text(std::mt19937_64& random, bool valid) {
  static const std::vector<std::string> kPieces = {
      "hello",      " world", "  ",         "\n",
      "\t\t",       "don't",  "I'LL",       "12345",
      "3.14",       "é",      "ß",          "你好",
      "こんにちは", "한국어", "🙂",         "👩‍👩‍👧",
      "e\u0301",    "\u00a0", "\u3000",     "\u2581",
      "ﬁ",          "Ω",      "...",        "!?",
      "<end>",      "<tag>",  "aaaaaaaaaa", "\r\n",
      "\x7f",       "\u200b", "नमस्ते",       "مرحبا",
      "ſ",          "'ſ"};
  static const std::vector<std::string> kBroken = {"\xff", "\xe4\xbd", "\xf0\x9f\x99",
                                                   "\x80", "\xc0\xaf", "\xed\xa0\x80"};
  std::string text;
  for (auto i = random() % 20; i > 0; --i) {
    text += kPieces[random() % kPieces.size()];
    if (!valid && random() % 4 == 0) text += kBroken[random() % kBroken.size()];
  }
  return text;
}

TEST(Tokenizer, MergesByRankThenFromTheLeft) {
  const auto tokenizer = make(small_byte_level());
  EXPECT_EQ(tokenizer->encode("hello"), (Ids{259}));
  EXPECT_EQ(tokenizer->encode("hell"), (Ids{258}));
  EXPECT_EQ(tokenizer->encode("lll"), (Ids{257, 'l'}));
  EXPECT_EQ(tokenizer->encode("hello world"), (Ids{259, 260, 'o', 'r', 'l', 'd'}));
  EXPECT_EQ(tokenizer->encode(""), Ids{});
}

TEST(Tokenizer, FindsSpecialTokensOnlyWhenAsked) {
  const auto tokenizer = make(small_byte_level());
  EXPECT_EQ(tokenizer->encode("he<end>", {.parse_special = true}), (Ids{256, 300}));
  EXPECT_EQ(tokenizer->encode("<end>"), (Ids{'<', 'e', 'n', 'd', '>'}));
  EXPECT_EQ(tokenizer->encode("<tag>"), (Ids{301}));  // not special: always a token
  EXPECT_EQ(tokenizer->decode(Ids{256, 300, 301}), "he<tag>");
  EXPECT_EQ(tokenizer->decode(Ids{256, 300, 301}, false), "he<end><tag>");
  EXPECT_EQ(tokenizer->find_token("<end>"), 300);
  EXPECT_EQ(tokenizer->find_token(" w"), 260);
  EXPECT_EQ(tokenizer->find_token("no such token"), -1);
  EXPECT_EQ(tokenizer->token_bytes(260), " w");
  EXPECT_EQ(tokenizer->token_bytes(299), "");
  EXPECT_EQ(tokenizer->token_bytes(9999), "");
}

TEST(Tokenizer, ByteLevelDecodingReturnsTheText) {
  const auto tokenizer = make(small_byte_level());
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = random_text(random, true);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    const std::string broken = random_text(random, false);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(broken)), replace_invalid_utf8(broken));
  }
}

TEST(Tokenizer, StreamedTextEqualsDecodedText) {
  const auto tokenizer = make(small_byte_level());
  std::mt19937_64 random(2);
  for (int i = 0; i < 2000; ++i) {
    Ids ids;
    for (auto n = random() % 30; n > 0; --n) ids.push_back(static_cast<TokenId>(random() % 310));
    StreamDecoder stream(tokenizer);
    std::string text;
    for (const TokenId id : ids) {
      const std::string piece = stream.push(id);
      EXPECT_TRUE(is_valid_utf8(piece));
      text += piece;
    }
    text += stream.finish();
    EXPECT_EQ(text, tokenizer->decode(ids));
  }
}

TEST(Tokenizer, StreamHoldsBackHalfACharacter) {
  const auto tokenizer = make(small_byte_level());
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.push(0x99), "");
  EXPECT_EQ(stream.push(0x82), "🙂");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.push('x'), "\uFFFDx");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(Tokenizer, LongWordsTakeTimeInProportion) {
  const auto tokenizer = make(small_byte_level());
  const auto start = std::chrono::steady_clock::now();
  const Ids ids = tokenizer->encode(std::string(1 << 20, 'a'));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(ids.size(), (1 << 20) / 16);  // "aa" doubled three times
  EXPECT_LT(seconds.count(), 20);         // a quadratic merge would need hours
  EXPECT_EQ(tokenizer->encode(std::string(1 << 20, ' ')).size(), 1 << 20);
}

TEST(Tokenizer, CharacterVocabularyHasPadBosEosFirst) {
  const auto tokenizer = char_tokenizer("0123456789+= é");
  EXPECT_EQ(tokenizer->vocab_size(), 17);
  EXPECT_EQ(tokenizer->encode("1+1=é"), (Ids{4, 13, 4, 14, 16}));
  EXPECT_EQ(tokenizer->encode("x1"), (Ids{4}));  // unknown characters are left out
  EXPECT_EQ(tokenizer->decode(Ids{1, 4, 13, 16, 2}), "1+é");
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), (Ids{2}));
  EXPECT_EQ(tokenizer->token_bytes(16), "é");
}

TEST(Tokenizer, ReadsLlama2cVocabulary) {
  WEFT_NEED_DATA(path, "models/stories260K/tok512.bin");
  auto tokenizer = tokenizer_from_llama2c(read_text(path), 512, path.string());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const std::string text = "Once upon a time, there was a little girl named Lily.";
  const Ids ids = (*tokenizer)->encode(text);
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ((*tokenizer)->decode(ids), text);
  // karpathy/llama2.c, test_all.py: the prompt ids of run.c for this vocabulary start
  // with "▁Once upon a time" as one token a word.
  EXPECT_EQ((*tokenizer)->token_bytes(ids[1]), " Once");
}

TEST(Tokenizer, RefusesTruncatedLlama2cVocabulary) {
  EXPECT_FALSE(tokenizer_from_llama2c("", 512, "x"));
  EXPECT_FALSE(tokenizer_from_llama2c(std::string(100, '\x7f'), 512, "x"));
  EXPECT_FALSE(tokenizer_from_llama2c(std::string(100, '\0'), -1, "x"));
}

TEST(Tokenizer, ReadsSmolLm2FromGguf) {
  const std::filesystem::path path = test::smollm2_file();
  if (path.empty()) GTEST_SKIP() << "smollm2-135m-instruct is not fetched";
  auto file = GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  auto tokenizer = tokenizer_from_gguf(**file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->vocab_size(), 49152);
  EXPECT_EQ((*tokenizer)->encode("The capital of France is"), (Ids{504, 3575, 282, 4649, 314}));
  EXPECT_EQ((*tokenizer)->decode(Ids{7042, 30}), " Paris.");
}

}  // namespace
}  // namespace weft::model
