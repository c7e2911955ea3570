// A sum in words through the model's chat template: "What is 3 + 8? Reply with the
// number only." The asked form is the digits and nothing else.
#pragma once

#include <memory>
#include <string_view>

#include "weft/rl/task.h"

namespace weft::rl {

// Sums of two numbers below 10, 55 unordered pairs; 11 of them (20 ordered pairs,
// the same for every seed) are asked in evaluation() only.
Result<std::unique_ptr<Task>> make_words_task(std::uint64_t seed, const PromptFormat& format);

bool held_out_pair(int a, int b);

// What a reply is worth: form (0.5 + 0.5 value). `form` is the share of characters that
// are digits (times 2 / digits beyond two): it leads from "The answer is 9." over
// "8 + 1 = 9" to "9". `value` is 1 for the right number, else up to 0.36 for a near one.
// Form multiplies because, added, "8 + 1 = 9" (0.61) was worth more than a plain number
// that is right one time in five, and the policy stayed there (measured).
struct WordsScore {
  double value = 0, form = 0;
  bool exact = false;
  double reward() const { return form * (0.5 + 0.5 * value); }
};
WordsScore words_score(std::string_view reply, bool ended, std::string_view answer);

}  // namespace weft::rl
