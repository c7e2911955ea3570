// Tasks whose questions come from a user's file of JSON lines.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "weft/rl/task.h"
#include "weft/rl/verifier.h"

namespace weft::rl {

// What a line of a question file holds.
struct Question {
  std::string prompt, reference;
};
struct QuestionFile {
  std::vector<Question> questions;
  InputProblems problems;  // the first 5 are named
};
// `prompt_key` and `reference_key` are the fields read; a reference may be a string
// or a number. Fails if the file cannot be read or has no good line.
Result<QuestionFile> read_questions(const std::filesystem::path& file, std::string_view prompt_key,
                                    std::string_view reference_key, bool reference_needed);

// Every question once an epoch, in an order of Philox (seed, epoch). Where there are
// at least 20, the last tenth (at most 200) is kept out of training for evaluation().
struct FileTaskOptions {
  std::uint64_t seed = 0;
  PromptFormat format = {};
  std::int64_t max_prompt_tokens = 0;  // longer prompts count as malformed; 0 = no bound
};

// GSM8K: {"question", "answer"}, the number after "####". A reply earns 0.9 for the
// number (after its own "####", else the last one) and 0.1 for using "####".
Result<std::unique_ptr<Task>> make_gsm8k_task(const std::filesystem::path& file,
                                              const FileTaskOptions& options);
Score gsm8k_score(std::string_view reply, std::string_view answer);

// {"prompt", "reference"}, scored by the verifier, or, where its command is empty, 1
// for the reference itself (spaces at both ends aside) and else 0.
Result<std::unique_ptr<Task>> make_jsonl_task(const std::filesystem::path& file,
                                              const FileTaskOptions& options,
                                              const VerifierOptions& verifier);

}  // namespace weft::rl
