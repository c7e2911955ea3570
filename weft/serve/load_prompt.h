// Prompts of about a wanted number of tokens for a server whose tokenizer is unknown.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace weft::serve {

// Common English words, which most tokenizers hold as one token each with their blank.
// `words` of them, chosen by the stream (seed, content); the same stream begins with the
// same words whatever the number.
std::string prompt_words(std::uint64_t seed, std::uint64_t content, std::uint32_t words);

// A prompt of `tokens` tokens at `words_per_token`. Each block of `block_tokens` has the
// words of its id, so that prompts share text exactly as far as they share leading ids;
// without blocks the text is that of `content`.
std::string make_prompt(std::uint64_t seed, std::uint64_t content, std::uint32_t tokens,
                        std::span<const std::uint64_t> blocks, std::uint32_t block_tokens,
                        double words_per_token);

}  // namespace weft::serve
