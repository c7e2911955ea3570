#include "weft/rl/words_task.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "weft/base/rng.h"
#include "weft/rl/number_text.h"

namespace weft::rl {
namespace {

std::string question(int a, int b) {
  return fmt::format("What is {} + {}? Reply with the number only.", a, b);
}

class WordsTask final : public Task {
 public:
  static Result<std::unique_ptr<Task>> make(std::uint64_t seed, const PromptFormat& format) {
    auto task = std::make_unique<WordsTask>();
    task->seed_ = seed;
    for (int a = 0; a < 10; ++a)
      for (int b = 0; b < 10; ++b) {
        Prompt p{
            .cursor = 0, .text = question(a, b), .reference = std::to_string(a + b), .tokens = {}};
        WEFT_ASSIGN(p.tokens, encode_prompt(format, p.text));
        task->longest_prompt_ =
            std::max(task->longest_prompt_, static_cast<std::int64_t>(p.tokens.size()));
        (held_out_pair(a, b) ? task->held_out_ : task->training_).push_back(std::move(p));
      }
    return task;
  }

  std::string name() const override { return "words"; }
  Prompt prompt(std::uint64_t cursor) const override {
    Rng rng(seed_, RngUse::kTask, cursor, 2);
    Prompt p = training_[rng.next_below(static_cast<std::uint32_t>(training_.size()))];
    p.cursor = cursor;
    return p;
  }
  const std::vector<Prompt>& evaluation() const override { return held_out_; }
  std::int64_t longest_prompt() const override { return longest_prompt_; }
  std::vector<Score> score(std::span<const Reply> replies) override {
    std::vector<Score> scores;
    for (const Reply& reply : replies) {
      const WordsScore s = words_score(reply.text, reply.ended, reply.prompt->reference);
      scores.push_back({.reward = s.reward(), .exact = s.exact, .error = {}});
    }
    return scores;
  }

 private:
  std::uint64_t seed_ = 0;
  std::int64_t longest_prompt_ = 0;
  std::vector<Prompt> training_, held_out_;
};

}  // namespace

bool held_out_pair(int a, int b) {
  // Unordered, so that 3 + 8 does not give 8 + 3 away; spread over all sums.
  const int low = std::min(a, b), high = std::max(a, b);
  return (low + 3 * high) % 5 == 1;
}

WordsScore words_score(std::string_view reply, bool ended, std::string_view answer) {
  WordsScore score;
  const auto digits = static_cast<double>(
      std::count_if(reply.begin(), reply.end(), [](char c) { return c >= '0' && c <= '9'; }));
  if (const auto number = last_number(reply)) {
    const double off =
        std::abs(std::atof(number->c_str()) - std::atof(std::string(answer).c_str()));
    score.value = off == 0 ? 1.0 : 0.4 * std::max(0.0, 1.0 - off / 10.0);
  }
  if (digits > 0)
    score.form = digits / static_cast<double>(reply.size()) * std::min(1.0, 2.0 / digits);
  score.exact = ended && reply == answer;
  return score;
}

Result<std::unique_ptr<Task>> make_words_task(std::uint64_t seed, const PromptFormat& format) {
  return WordsTask::make(seed, format);
}

}  // namespace weft::rl
