// Tokens that publishers use for the same purpose under different names, for files
// that do not say which ids they are.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace weft::model {

// Ends of a turn or text (as llama.cpp's list of end-of-generation tokens).
inline bool ends_a_reply(std::string_view text) {
  constexpr std::array<std::string_view, 17> kNames = {"</s>",
                                                       "<|endoftext|>",
                                                       "<|end_of_text|>",
                                                       "<|eot_id|>",
                                                       "<|eom_id|>",
                                                       "<|im_end|>",
                                                       "<|end|>",
                                                       "<end_of_turn>",
                                                       "<eos>",
                                                       "<|eot|>",
                                                       "<|eom|>",
                                                       "<EOT>",
                                                       "<|END_OF_TURN_TOKEN|>",
                                                       "<|endofturn|>",
                                                       "<｜end▁of▁sentence｜>",
                                                       "<|return|>",
                                                       "<end_of_utterance>"};
  return std::ranges::find(kNames, text) != kNames.end();
}

inline bool begins_a_text(std::string_view text) {
  constexpr std::array<std::string_view, 6> kNames = {
      "<s>",   "<|begin_of_text|>", "<｜begin▁of▁sentence｜>",
      "<bos>", "<|startoftext|>",   "<BOS_TOKEN>"};
  return std::ranges::find(kNames, text) != kNames.end();
}

}  // namespace weft::model
