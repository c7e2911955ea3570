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

// What a reply is worth: `value` is the share for the right number, graded over
// how plainly it stands there; `form` rewards digits only and little else, and is
// what leads from "8 + 1 = 9" to "9".
struct WordsScore {
  double value = 0, form = 0;
  bool exact = false;
  double reward() const { return 0.5 * value + 0.5 * form; }
};
WordsScore words_score(std::string_view reply, bool ended, std::string_view answer);

}  // namespace weft::rl
