#include "weft/rl/task.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "tests/support/data.h"
#include "weft/rl/file_tasks.h"
#include "weft/rl/number_text.h"
#include "weft/rl/words_task.h"

namespace weft::rl {
namespace {

using Ids = std::vector<model::TokenId>;

TEST(CharTasks, SixteenIdsAndPromptsThatDependOnlyOnSeedAndCursor) {
  EXPECT_EQ(task_tokenizer()->vocab_size(), 16);
  for (const char* name : {"modadd", "copy", "sort", "digits"}) {
    auto a = make_char_task(name, 5), b = make_char_task(name, 5), c = make_char_task(name, 6);
    int differ = 0;
    for (std::uint64_t i = 0; i < 50; ++i) {
      EXPECT_EQ(a->prompt(49 - i).text, b->prompt(49 - i).text);
      differ += a->prompt(i).text != c->prompt(i).text;
    }
    EXPECT_GT(differ, 25) << name;
    EXPECT_GE(a->evaluation().size(), 100U);
  }
}

TEST(CharTasks, TheReferenceIsWorthOneAndAPrefixItsShare) {
  auto tokenizer = task_tokenizer();
  for (const char* name : {"modadd", "copy", "sort", "digits"}) {
    auto task = make_char_task(name, 1);
    for (std::uint64_t i = 0; i < 20; ++i) {
      const Prompt p = task->prompt(i);
      Ids right = tokenizer->encode(p.reference, {.add_special = false});
      const std::size_t n = right.size();
      right.push_back(tokenizer->eos().front());
      Reply reply{.prompt = &p, .tokens = right, .text = {}, .ended = true};
      EXPECT_EQ(task->score({&reply, 1})[0].reward, 1.0);
      EXPECT_TRUE(task->score({&reply, 1})[0].exact);
      reply.tokens = {right.data(), n};  // cut before the end token
      EXPECT_NEAR(task->score({&reply, 1})[0].reward, 0.5 * double(n) / double(n + 1), 1e-12);
      EXPECT_FALSE(task->score({&reply, 1})[0].exact);
    }
  }
}

TEST(CharTasks, AReplyOfPaddingIsScoredLikeAnyOther) {
  const Ids reference = {5, 2}, padded = {0, 0}, longer = {5, 2, 2};
  EXPECT_EQ(prefix_score(padded, reference).reward, 0.0);
  EXPECT_EQ(prefix_score({}, reference).reward, 0.0);
  EXPECT_FALSE(prefix_score(longer, reference).exact);
}

TEST(Numbers, AreFoundAsWritten) {
  EXPECT_EQ(last_number("it is 1,234.50 dollars."), "1234.50");
  EXPECT_EQ(last_number("a-7 then -8"), "-8");
  EXPECT_EQ(last_number("3-8"), "8");
  EXPECT_EQ(last_number("none"), std::nullopt);
  EXPECT_EQ(number_after("x 1 #### 42 and 43", "####"), "42");
  EXPECT_EQ(number_after("x 1", "####"), std::nullopt);
  EXPECT_TRUE(same_number("72", "72.0"));
  EXPECT_FALSE(same_number("72", "73"));
  EXPECT_FALSE(same_number("", "0"));
}

TEST(Gsm8k, RewardsTheNumberAndTheForm) {
  EXPECT_NEAR(gsm8k_score("so 40 + 32 = 72\n#### 72", "72").reward, 1.0, 1e-12);
  EXPECT_TRUE(gsm8k_score("#### 72", "72").exact);
  EXPECT_NEAR(gsm8k_score("it is 72.", "72").reward, 0.9, 1e-12);
  EXPECT_FALSE(gsm8k_score("it is 72.", "72").exact);
  EXPECT_NEAR(gsm8k_score("72 #### 7", "72").reward, 0.1, 1e-12);
  EXPECT_EQ(gsm8k_score("", "72").reward, 0.0);
}

TEST(WordsTask, HeldOutPairsAreAFifthAndSymmetric) {
  int held = 0;
  std::set<int> sums;
  for (int a = 0; a < 10; ++a)
    for (int b = 0; b < 10; ++b) {
      EXPECT_EQ(held_out_pair(a, b), held_out_pair(b, a));
      held += held_out_pair(a, b);
      if (held_out_pair(a, b)) sums.insert(a + b);
    }
  EXPECT_EQ(held, 20);
  EXPECT_GE(sums.size(), 8U);
}

TEST(WordsTask, TheRewardRisesOnTheWayToThePlainNumber) {
  // The ladder that the policy has to climb, each rung above the one before.
  const std::vector<std::string> ladder = {"The sum of eight and one is", "The answer is 9.",
                                           "8 + 1 = 9", "8+1=9", "9"};
  double last = -1;
  for (const std::string& reply : ladder) {
    const double reward = words_score(reply, true, "9").reward();
    EXPECT_GT(reward, last) << reply;
    last = reward;
  }
  EXPECT_EQ(words_score("9", true, "9").reward(), 1.0);
  EXPECT_TRUE(words_score("9", true, "9").exact);
  EXPECT_FALSE(words_score("9", false, "9").exact);
  EXPECT_FALSE(words_score(" 9", true, "9").exact);
  EXPECT_LT(words_score("8", true, "9").reward(), 1.0);
}

class FileTasks : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / fmt::format("weft_rl_{}.jsonl", ::getpid());
  }
  void TearDown() override { std::filesystem::remove(path_); }
  void write(const std::string& text) { std::ofstream(path_) << text; }
  std::filesystem::path path_;
  FileTaskOptions options_{.seed = 3,
                           .format = {.tokenizer = task_tokenizer(), .chat_template = {}}};
};

TEST_F(FileTasks, MalformedLinesAreNamedAndCounted) {
  write(
      "{\"prompt\": \"1+1=\", \"reference\": 2}\nnot json\n\n{\"prompt\": 3}\n{\"prompt\": \"\", "
      "\"reference\": \"x\"}\n[1]\n");
  auto file = read_questions(path_, "prompt", "reference", true);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->questions.size(), 1U);
  EXPECT_EQ(file->questions[0].reference, "2");
  EXPECT_EQ(file->problems.count, 4);
  EXPECT_NE(file->problems.first[0].find(":2: "), std::string::npos) << file->problems.first[0];
  EXPECT_NE(file->problems.first[1].find(":4: no field \"reference\""), std::string::npos)
      << file->problems.first[1];
}

TEST_F(FileTasks, AFileWithoutAUsableLineIsRefused) {
  write("nonsense\n");
  auto file = read_questions(path_, "prompt", "reference", true);
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message.find("no usable line"), std::string::npos);
  EXPECT_FALSE(read_questions("/no/such/file", "prompt", "reference", true));
}

TEST_F(FileTasks, AnEpochAsksEveryTrainingQuestionOnceAndNeverAHeldOutOne) {
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += fmt::format("{{\"prompt\": \"{}+{}=\", \"reference\": \"r{}\"}}\n", i / 10, i % 10, i);
  write(text);
  auto task = make_jsonl_task(path_, options_, {});
  ASSERT_TRUE(task) << task.error().message;
  std::set<std::string> held;
  for (const Prompt& p : (*task)->evaluation()) held.insert(p.text);
  EXPECT_EQ(held.size(), 4U);
  std::string first_order, second_order;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    std::set<std::string> seen;
    for (std::uint64_t i = 0; i < 36; ++i) {
      const Prompt p = (*task)->prompt(epoch * 36 + i);
      seen.insert(p.text);
      (epoch == 0 ? first_order : second_order) += p.text;
    }
    EXPECT_EQ(seen.size(), 36U);
    for (const auto& h : held) EXPECT_EQ(seen.count(h), 0U);
  }
  EXPECT_NE(first_order, second_order);
}

TEST_F(FileTasks, WithoutAVerifierTheReferenceItselfIsRight) {
  write("{\"prompt\": \"1+1=\", \"reference\": \" 2\"}\n");
  auto task = make_jsonl_task(path_, options_, {});
  ASSERT_TRUE(task);
  const Prompt p = (*task)->prompt(0);
  const Reply right{.prompt = &p, .tokens = {}, .text = "2 ", .ended = true},
      cut{.prompt = &p, .tokens = {}, .text = "2", .ended = false};
  EXPECT_EQ((*task)->score({&right, 1})[0].reward, 1.0);
  EXPECT_EQ((*task)->score({&cut, 1})[0].reward, 0.0);
}

TEST_F(FileTasks, ReadsGsm8k) {
  WEFT_NEED_DATA(file, "text/gsm8k/train.jsonl");
  auto questions = read_questions(file, "question", "answer", true);
  ASSERT_TRUE(questions) << questions.error().message;
  EXPECT_EQ(questions->problems.count, 0);
  for (const Question& q : questions->questions) {
    const auto number = number_after(q.reference, "####");
    ASSERT_TRUE(number) << q.reference;
    EXPECT_EQ(gsm8k_score(q.reference, *number).reward, 1.0);
  }
}

}  // namespace
}  // namespace weft::rl
