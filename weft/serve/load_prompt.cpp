#include "weft/serve/load_prompt.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "weft/base/rng.h"

namespace weft::serve {
namespace {

constexpr std::array<std::string_view, 64> kWords = {
    "the",  "of",   "and",  "to",     "in",    "is",   "was",  "for",   "on",     "that",  "with",
    "he",   "it",   "as",   "at",     "his",   "they", "be",   "from",  "had",    "her",   "she",
    "were", "this", "have", "not",    "are",   "but",  "or",   "one",   "all",    "who",   "when",
    "time", "day",  "big",  "little", "said",  "very", "then", "saw",   "up",     "out",   "so",
    "some", "went", "mom",  "play",   "want",  "like", "see",  "could", "friend", "happy", "tree",
    "can",  "do",   "go",   "good",   "there", "them", "if",   "would", "new"};

std::uint32_t words_of(std::uint32_t tokens, double words_per_token) {
  return std::max<std::uint32_t>(1,
                                 static_cast<std::uint32_t>(std::lround(tokens * words_per_token)));
}

}  // namespace

std::string prompt_words(std::uint64_t seed, std::uint64_t content, std::uint32_t words) {
  const Rng rng(seed, RngUse::kData, content, 40);
  std::string out;
  out.reserve(std::size_t{words} * 5);
  for (std::uint32_t i = 0; i < words; i += 4) {
    for (std::uint32_t k = 0; const std::uint32_t bits : rng.block(i / 4)) {
      if (i + k++ >= words) break;
      out += ' ';
      out += kWords[bits % kWords.size()];
    }
  }
  return out;
}

std::string make_prompt(std::uint64_t seed, std::uint64_t content, std::uint32_t tokens,
                        std::span<const std::uint64_t> blocks, std::uint32_t block_tokens,
                        double words_per_token) {
  if (blocks.empty() || block_tokens == 0) {
    return prompt_words(seed, content, words_of(tokens, words_per_token));
  }
  std::string out;
  std::uint32_t left = tokens;
  for (const std::uint64_t id : blocks) {
    if (left == 0) break;
    const std::uint32_t here = std::min(left, block_tokens);
    out += prompt_words(seed, id, words_of(here, words_per_token));
    left -= here;
  }
  return out;
}

}  // namespace weft::serve
