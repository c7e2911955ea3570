#include "weft/rl/file_tasks.h"

#include <algorithm>
#include <fstream>
#include <numeric>

#include "weft/base/json.h"
#include "weft/base/rng.h"
#include "weft/rl/number_text.h"

namespace weft::rl {
namespace {

constexpr std::size_t kNamedLines = 5;

void note(InputProblems& problems, std::string sentence) {
  ++problems.count;
  if (problems.first.size() < kNamedLines) problems.first.push_back(std::move(sentence));
}

// Fisher-Yates by Philox: the order of one epoch.
std::vector<std::uint32_t> epoch_order(std::uint64_t seed, std::uint64_t epoch, std::size_t n) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  Rng rng(seed, RngUse::kShuffle, epoch, 3);
  for (std::size_t i = n; i > 1; --i)
    std::swap(order[i - 1], order[rng.next_below(static_cast<std::uint32_t>(i))]);
  return order;
}

std::string_view trimmed(std::string_view s) {
  const auto first = s.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r\n") - first + 1);
}

// Questions in the order of their epochs; the scoring is the subclass's.
class QuestionTask : public Task {
 public:
  Prompt prompt(std::uint64_t cursor) const override {
    const std::uint64_t n = training_.size(), epoch = cursor / n;
    if (epoch != epoch_ || order_.empty()) {
      order_ = epoch_order(seed_, epoch, n);
      epoch_ = epoch;
    }
    Prompt p = training_[order_[cursor % n]];
    p.cursor = cursor;
    return p;
  }
  const std::vector<Prompt>& evaluation() const override { return evaluation_; }
  std::int64_t longest_prompt() const override { return longest_prompt_; }
  const InputProblems& input_problems() const override { return problems_; }

 protected:
  Status fill(QuestionFile file, const FileTaskOptions& options, const std::string& name) {
    seed_ = options.seed;
    problems_ = std::move(file.problems);
    for (Question& q : file.questions) {
      Prompt p{.cursor = 0,
               .text = std::move(q.prompt),
               .reference = std::move(q.reference),
               .tokens = {}};
      WEFT_ASSIGN(p.tokens, encode_prompt(options.format, p.text));
      if (p.tokens.empty() ||
          (options.max_prompt_tokens > 0 &&
           static_cast<std::int64_t>(p.tokens.size()) > options.max_prompt_tokens)) {
        note(problems_, fmt::format("{}: the prompt '{}...' is empty or longer than {} tokens",
                                    name, p.text.substr(0, 40), options.max_prompt_tokens));
        continue;
      }
      longest_prompt_ = std::max(longest_prompt_, static_cast<std::int64_t>(p.tokens.size()));
      training_.push_back(std::move(p));
    }
    if (training_.empty())
      return fail(ErrorCode::kInvalidArgument, "{}: every prompt is empty or longer than {} tokens",
                  name, options.max_prompt_tokens);
    const std::size_t kept_out =
        training_.size() < 20 ? 0 : std::min<std::size_t>(training_.size() / 10, 200);
    evaluation_.assign(training_.end() - static_cast<std::ptrdiff_t>(kept_out), training_.end());
    training_.resize(training_.size() - kept_out);
    if (evaluation_.empty()) evaluation_ = training_;
    return {};
  }

 private:
  std::uint64_t seed_ = 0;
  std::int64_t longest_prompt_ = 0;
  InputProblems problems_;
  std::vector<Prompt> training_, evaluation_;
  mutable std::uint64_t epoch_ = 0;  // of order_; one thread asks for prompts
  mutable std::vector<std::uint32_t> order_;
};

class Gsm8kTask final : public QuestionTask {
 public:
  static Result<std::unique_ptr<Task>> make(QuestionFile file, const FileTaskOptions& options,
                                            const std::string& path) {
    auto task = std::make_unique<Gsm8kTask>();
    std::vector<Question> good;
    for (Question& q : file.questions) {
      auto number = number_after(q.reference, "####");
      if (!number) {
        note(file.problems, fmt::format("{}: no number after #### in the answer to '{}...'", path,
                                        q.prompt.substr(0, 40)));
        continue;
      }
      good.push_back({q.prompt + "\nEnd your reply with #### and the final number.", *number});
    }
    file.questions = std::move(good);
    WEFT_TRY(task->fill(std::move(file), options, path));
    return task;
  }
  std::string name() const override { return "gsm8k"; }
  std::vector<Score> score(std::span<const Reply> replies) override {
    std::vector<Score> scores;
    for (const Reply& reply : replies)
      scores.push_back(gsm8k_score(reply.text, reply.prompt->reference));
    return scores;
  }
};

class JsonlTask final : public QuestionTask {
 public:
  static Result<std::unique_ptr<Task>> make(QuestionFile file, const FileTaskOptions& options,
                                            const VerifierOptions& verifier,
                                            const std::string& path) {
    auto task = std::make_unique<JsonlTask>();
    if (!verifier.command.empty()) task->verifier_ = std::make_unique<Verifier>(verifier);
    WEFT_TRY(task->fill(std::move(file), options, path));
    return task;
  }
  std::string name() const override { return "jsonl"; }
  std::vector<Score> score(std::span<const Reply> replies) override {
    if (verifier_) return verifier_->score(replies);
    std::vector<Score> scores;
    for (const Reply& reply : replies) {
      const bool exact = reply.ended && trimmed(reply.text) == trimmed(reply.prompt->reference);
      scores.push_back({.reward = exact ? 1.0 : 0.0, .exact = exact, .error = {}});
    }
    return scores;
  }

 private:
  std::unique_ptr<Verifier> verifier_;
};

Result<std::string> text_field(const Json& line, std::string_view key, bool needed) {
  const auto it = line.find(std::string(key));
  if (it == line.end() || it->is_null()) {
    if (!needed) return std::string();
    return fail(ErrorCode::kInvalidArgument, "no field \"{}\"", key);
  }
  if (it->is_string()) return it->get<std::string>();
  if (it->is_number()) return dump_json(*it);
  return fail(ErrorCode::kInvalidArgument, "field \"{}\" is neither text nor a number", key);
}

}  // namespace

Result<QuestionFile> read_questions(const std::filesystem::path& file, std::string_view prompt_key,
                                    std::string_view reference_key, bool reference_needed) {
  std::ifstream in(file);
  if (!in) return fail(ErrorCode::kNotFound, "{}: cannot be read", file.string());
  QuestionFile result;
  std::string text;
  for (std::int64_t number = 1; std::getline(in, text); ++number) {
    if (trimmed(text).empty()) continue;
    const auto parse = [&]() -> Result<Question> {
      WEFT_ASSIGN(const Json line, parse_json(text, "JSON"));
      if (!line.is_object()) return fail(ErrorCode::kInvalidArgument, "not a JSON object");
      WEFT_ASSIGN(std::string prompt, text_field(line, prompt_key, true));
      WEFT_ASSIGN(std::string reference, text_field(line, reference_key, reference_needed));
      if (prompt.empty()) return fail(ErrorCode::kInvalidArgument, "\"{}\" is empty", prompt_key);
      return Question{std::move(prompt), std::move(reference)};
    };
    auto question = parse();
    if (question) {
      result.questions.push_back(std::move(*question));
      continue;
    }
    note(result.problems,
         fmt::format("{}:{}: {}", file.string(), number, question.error().message));
  }
  if (result.questions.empty())
    return fail(ErrorCode::kInvalidArgument, "{}: no usable line{}{}", file.string(),
                result.problems.first.empty() ? "" : "; ",
                result.problems.first.empty() ? "" : result.problems.first.front());
  return result;
}

Score gsm8k_score(std::string_view reply, std::string_view answer) {
  const auto marked = number_after(reply, "####");
  const auto number = marked ? marked : last_number(reply);
  const bool right = number && same_number(*number, answer);
  Score score;
  score.reward = (right ? 0.9 : 0.0) + (marked ? 0.1 : 0.0);
  score.exact = right && marked.has_value();
  return score;
}

Result<std::unique_ptr<Task>> make_gsm8k_task(const std::filesystem::path& file,
                                              const FileTaskOptions& options) {
  WEFT_ASSIGN(QuestionFile questions, read_questions(file, "question", "answer", true));
  return Gsm8kTask::make(std::move(questions), options, file.string());
}

Result<std::unique_ptr<Task>> make_jsonl_task(const std::filesystem::path& file,
                                              const FileTaskOptions& options,
                                              const VerifierOptions& verifier) {
  WEFT_ASSIGN(QuestionFile questions,
              read_questions(file, "prompt", "reference", verifier.command.empty()));
  return JsonlTask::make(std::move(questions), options, verifier, file.string());
}

}  // namespace weft::rl
