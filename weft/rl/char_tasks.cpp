#include <algorithm>
#include <array>

#include "weft/base/rng.h"
#include "weft/rl/task.h"

namespace weft::rl {
namespace {

using model::TokenId;

enum class CharKind : std::uint8_t { kModadd, kCopy, kSort, kDigits };

struct Question {
  std::string text, answer;
};

std::string digits_of(Rng& rng, int count) {
  std::string s;
  for (int i = 0; i < count; ++i) s += static_cast<char>('0' + rng.next_below(10));
  return s;
}

std::string progression(std::uint32_t first, std::uint32_t step, int from, int to) {
  std::string s;
  for (int i = from; i < to; ++i)
    s += static_cast<char>('0' + (first + step * static_cast<std::uint32_t>(i)) % 10);
  return s;
}

Question modadd(std::uint32_t a, std::uint32_t b) {
  return {std::to_string(a) + "+" + std::to_string(b) + "=", std::to_string((a + b) % 10)};
}

Question draw(CharKind kind, Rng rng) {
  switch (kind) {
    case CharKind::kModadd: {
      const std::uint32_t a = rng.next_below(10);
      return modadd(a, rng.next_below(10));
    }
    case CharKind::kCopy: {
      const std::string s = digits_of(rng, 5);
      return {s + "=", s};
    }
    case CharKind::kSort: {
      std::string s = digits_of(rng, 5);
      Question q{s + "=", s};
      std::sort(q.answer.begin(), q.answer.end());
      return q;
    }
    case CharKind::kDigits: {
      const std::uint32_t first = rng.next_below(10), step = rng.next_below(10);
      return {progression(first, step, 0, 3) + "=", progression(first, step, 3, 6)};
    }
  }
  return {};
}

class CharTask final : public Task {
 public:
  CharTask(std::string name, CharKind kind, std::uint64_t seed)
      : name_(std::move(name)), kind_(kind), seed_(seed), tokenizer_(task_tokenizer()) {
    // Everything where that is little (100 sums, 100 progressions), else 200 draws
    // of another stream.
    for (std::uint32_t a = 0; a < 10 && kind == CharKind::kModadd; ++a)
      for (std::uint32_t b = 0; b < 10; ++b) evaluation_.push_back(encode(modadd(a, b), 0));
    for (std::uint32_t a = 0; a < 10 && kind == CharKind::kDigits; ++a)
      for (std::uint32_t b = 0; b < 10; ++b)
        evaluation_.push_back(encode({progression(a, b, 0, 3) + "=", progression(a, b, 3, 6)}, 0));
    if (evaluation_.empty())
      for (std::uint64_t i = 0; i < 200; ++i)
        evaluation_.push_back(encode(draw(kind, Rng(seed, RngUse::kTask, i, 1)), i));
  }

  std::string name() const override { return name_; }
  Prompt prompt(std::uint64_t cursor) const override {
    return encode(draw(kind_, Rng(seed_, RngUse::kTask, cursor, 0)), cursor);
  }
  const std::vector<Prompt>& evaluation() const override { return evaluation_; }
  std::int64_t longest_prompt() const override {
    return static_cast<std::int64_t>(evaluation_.front().tokens.size());  // all are equal
  }
  std::vector<Score> score(std::span<const Reply> replies) override {
    std::vector<Score> scores;
    for (const Reply& reply : replies) {
      std::vector<TokenId> reference =
          tokenizer_->encode(reply.prompt->reference, {.add_special = false});
      reference.push_back(tokenizer_->eos().front());
      scores.push_back(prefix_score(reply.tokens, reference));
    }
    return scores;
  }

 private:
  Prompt encode(Question q, std::uint64_t cursor) const {
    Prompt p{.cursor = cursor,
             .text = std::move(q.text),
             .reference = std::move(q.answer),
             .tokens = {}};
    p.tokens = tokenizer_->encode(p.text, {.add_special = false});
    p.tokens.insert(p.tokens.begin(), tokenizer_->bos());
    return p;
  }

  std::string name_;
  CharKind kind_;
  std::uint64_t seed_;
  std::shared_ptr<const model::Tokenizer> tokenizer_;
  std::vector<Prompt> evaluation_;
};

constexpr std::array<std::pair<std::string_view, CharKind>, 4> kCharTasks = {{
    {"modadd", CharKind::kModadd},
    {"copy", CharKind::kCopy},
    {"sort", CharKind::kSort},
    {"digits", CharKind::kDigits},
}};

}  // namespace

std::shared_ptr<const model::Tokenizer> task_tokenizer() {
  return model::char_tokenizer(kTaskAlphabet);
}

bool is_char_task(std::string_view name) {
  return std::any_of(kCharTasks.begin(), kCharTasks.end(),
                     [&](const auto& entry) { return entry.first == name; });
}

std::unique_ptr<Task> make_char_task(std::string_view name, std::uint64_t seed) {
  for (const auto& [known, kind] : kCharTasks)
    if (known == name) return std::make_unique<CharTask>(std::string(name), kind, seed);
  WEFT_CHECK(false, "no character task {}", name);
  return nullptr;
}

Score prefix_score(std::span<const TokenId> reply, std::span<const TokenId> reference) {
  WEFT_CHECK(!reference.empty(), "an empty reference");
  std::size_t right = 0;
  while (right < reference.size() && right < reply.size() && reply[right] == reference[right])
    ++right;
  Score score;
  score.exact = right == reference.size() && reply.size() == reference.size();
  score.reward = 0.5 * static_cast<double>(right) / static_cast<double>(reference.size()) +
                 (score.exact ? 0.5 : 0.0);
  return score;
}

}  // namespace weft::rl
