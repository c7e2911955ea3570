// Tasks: where prompts come from and what a reply is worth.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"
#include "weft/model/chat_template.h"
#include "weft/model/tokenizer.h"

namespace weft::rl {

struct Prompt {
  std::uint64_t cursor = 0;                 // its place in the task's endless stream
  std::string text;                         // for people, and what a verifier is given
  std::string reference;                    // the right answer
  std::vector<model::TokenId> tokens = {};  // what the model is given
};

// A finished reply. `ended` is false where it was cut by the token limit.
struct Reply {
  const Prompt* prompt = nullptr;
  std::span<const model::TokenId> tokens = {};  // as sampled, with the end token if it came
  std::string text;                             // decoded, special tokens left out
  bool ended = false;
};

// A reward, or the reason why there is none: an error is not a reward of 0.
struct Score {
  double reward = 0;
  bool exact = false;      // entirely right, in the form that was asked for
  std::string error = {};  // not empty: the sample has no reward
};

// Lines of a question file that could not be used: how many, and the first few,
// each with file, line and reason.
struct InputProblems {
  std::int64_t count = 0;
  std::vector<std::string> first;
};

// score() may talk to a process and is called from one thread; the rest is
// immutable. prompt() is a pure function of the cursor and the task's seed.
class Task {
 public:
  virtual ~Task() = default;
  virtual std::string name() const = 0;
  virtual Prompt prompt(std::uint64_t cursor) const = 0;
  // Prompts for greedy evaluation; for tasks with few questions, kept out of
  // prompt() (the cursor of these is meaningless).
  virtual const std::vector<Prompt>& evaluation() const = 0;
  virtual std::vector<Score> score(std::span<const Reply> replies) = 0;
  virtual std::int64_t longest_prompt() const = 0;  // in tokens, of all prompts
  // Lines of input that were passed over.
  virtual const InputProblems& input_problems() const;
};

// The small tasks over single characters, learned from random weights:
//   modadd  "3+8="    -> "1"      (a + b) mod 10
//   copy    "40291="  -> "40291"
//   sort    "40291="  -> "01249"
//   digits  "147="    -> "036"    an arithmetic progression modulo 10, continued
inline constexpr std::string_view kTaskAlphabet = "0123456789+=>";  // 16 ids with pad, bos, eos
std::shared_ptr<const model::Tokenizer> task_tokenizer();
bool is_char_task(std::string_view name);
std::unique_ptr<Task> make_char_task(std::string_view name, std::uint64_t seed);

// Half for the share of the reference that the reply starts with, half for being
// equal to it; the end token counts as one more character.
Score prefix_score(std::span<const model::TokenId> reply,
                   std::span<const model::TokenId> reference);

// How tasks in words reach the model: its tokenizer and, where it has one, its
// chat template.
struct PromptFormat {
  std::shared_ptr<const model::Tokenizer> tokenizer;
  std::optional<model::ChatTemplate> chat_template;
};
struct FileTaskOptions;
struct VerifierOptions;
// The task that `spec` names ("modadd", "words", "gsm8k:FILE", "jsonl:FILE").
Result<std::unique_ptr<Task>> make_task(std::string_view spec, const FileTaskOptions& options,
                                        const VerifierOptions& verifier);

// One user turn, rendered and encoded; without a template the text itself.
Result<std::vector<model::TokenId>> encode_prompt(const PromptFormat& format,
                                                  std::string_view user);

}  // namespace weft::rl
