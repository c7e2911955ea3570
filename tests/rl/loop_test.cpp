// The whole loop on the small task: engine, trainer and objective together.
#include "weft/rl/loop.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "weft/base/file.h"
#include "weft/rl/dump.h"
#include "weft/rl/report.h"
#include "weft/rl/view.h"

namespace weft::rl {
namespace {

class LoopTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / fmt::format("weft_rl_loop_{}", ::getpid());
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  static RlConfig small(const std::string& algo, std::int64_t steps) {
    RlConfig c{.task = "modadd", .algo = algo, .steps = steps, .prompts = 4, .group = 4};
    if (algo == "ppo") c.group = 2;
    c.eval_every = 1000;
    return c;
  }
  LoopResult run(RlConfig config, const std::string& name, bool resume = false,
                 std::vector<std::string>* messages = nullptr) {
    EXPECT_TRUE(resolve(config)) << resolve(config).error().message;
    LoopEvents events;
    if (messages) events.on_message = [=](const std::string& line) { messages->push_back(line); };
    auto result = run_loop(config, {.run = root_ / name, .resume = resume}, events, pool_);
    EXPECT_TRUE(result) << (result ? "" : result.error().message);
    return result ? *result : LoopResult{};
  }
  // metrics.jsonl without the times.
  std::string metrics(const std::string& name) {
    auto lines = read_json_lines(root_ / name / "metrics.jsonl");
    EXPECT_TRUE(lines);
    std::string all;
    for (Json line : *lines) {
      line.erase("time");
      all += dump_json(line) + "\n";
    }
    return all;
  }
  std::string bytes(const std::filesystem::path& file) {
    auto text = read_file(root_ / file);
    EXPECT_TRUE(text) << (text ? "" : text.error().message);
    return text ? *text : "";
  }

  std::filesystem::path root_;
  ThreadPool pool_{2};
};

TEST_F(LoopTest, SamplerAndTrainerAgreeToTheBitForEveryAlgorithm) {
  for (const char* algo :
       {"grpo", "drgrpo", "dapo", "rloo", "gspo", "ppo", "cispo", "sapo", "reinforce"}) {
    RlConfig c = small(algo, 4);
    c.prompts = 16;  // enough samples that some group earns unequal rewards
    c.group = 8;
    const LoopResult r = run(c, algo);
    EXPECT_EQ(r.steps, 4) << algo;
    EXPECT_EQ(r.mismatch_max, 0.0) << algo;
    EXPECT_EQ(r.skipped, 0) << algo;
    EXPECT_GT(r.last.grad_norm, 0.0) << algo;
  }
}

TEST_F(LoopTest, TwoRunsGiveEqualBits) {
  run(small("grpo", 5), "a");
  run(small("grpo", 5), "b");
  EXPECT_EQ(metrics("a"), metrics("b"));
  EXPECT_EQ(bytes("a/model/model.safetensors"), bytes("b/model/model.safetensors"));
  RlConfig other = small("grpo", 5);
  other.seed = 1;
  run(other, "c");
  EXPECT_NE(bytes("a/model/model.safetensors"), bytes("c/model/model.safetensors"));
}

TEST_F(LoopTest, MicroBatchesDoNotChangeABit) {
  RlConfig c = small("grpo", 3);
  run(c, "whole");
  c.micro_batch_tokens = 24;
  run(c, "split");
  EXPECT_EQ(bytes("whole/model/model.safetensors"), bytes("split/model/model.safetensors"));
}

TEST_F(LoopTest, AResumedRunEndsWithTheSameBits) {
  RlConfig c = small("grpo", 6);
  c.checkpoint_every = 2;
  c.kl = 0.01;
  c.kl_target = 0.05;
  run(c, "whole");
  c.steps = 4;
  run(c, "parts");
  c.steps = 6;
  run(c, "parts", true);
  EXPECT_EQ(metrics("whole"), metrics("parts"));
  EXPECT_EQ(bytes("whole/model/model.safetensors"), bytes("parts/model/model.safetensors"));
}

TEST_F(LoopTest, DumpsReplayToTheBitAndADamagedOneIsFound) {
  for (const char* algo : {"grpo", "dapo", "gspo", "ppo", "reinforce"}) {
    RlConfig c = small(algo, 2);
    c.dump_steps = 2;
    c.entropy = 0.01;
    c.kl = 0.05;
    if (std::string(algo) == "reinforce") c.kl_in = "reward";
    c.mini_batches = 2;
    c.epochs = 2;
    c.correction = "token";
    run(c, algo);
    for (int step : {1, 2}) {
      auto dump = read_dump(root_ / algo / "dumps" / fmt::format("step-{:08}.safetensors", step));
      ASSERT_TRUE(dump) << dump.error().message;
      EXPECT_EQ(dump->updates.size(), 4U);
      Replay r = replay(*dump);
      EXPECT_EQ(r.different, 0) << algo << ": " << r.first_difference;
      EXPECT_GT(r.values, 100);
      dump->advantage[0] += 0.5F;
      dump->updates[1].gradient.logp[2] = -dump->updates[1].gradient.logp[2] - 1.0F;
      r = replay(*dump);
      EXPECT_EQ(r.different, 2) << algo;
      EXPECT_NE(r.first_difference.find("advantage[0]"), std::string::npos);
    }
  }
}

TEST_F(LoopTest, ARatioBeyondTheBoundSkipsTheStepAndKeepsTheBatch) {
  RlConfig c = small("grpo", 2);
  c.epochs = 4;
  c.lr = 0.5;  // one such update sends the policy anywhere
  c.max_grad_norm = 0;
  c.max_ratio = 1.5;
  std::vector<std::string> messages;
  const LoopResult r = run(c, "wild", false, &messages);
  EXPECT_GT(r.skipped, 0);
  auto lines = read_json_lines(root_ / "wild" / "metrics.jsonl");
  ASSERT_TRUE(lines);
  ASSERT_TRUE((*lines)[0]["skipped"].get<bool>());
  auto dump = read_dump(root_ / "wild/dumps/step-00000001.safetensors");
  ASSERT_TRUE(dump) << dump.error().message;
  EXPECT_NE(dump->why.find("max_ratio"), std::string::npos) << dump->why;
  EXPECT_EQ(replay(*dump).different, 0);
}

TEST_F(LoopTest, RefusesARunDirectoryThatIsTaken) {
  run(small("grpo", 1), "taken");
  RlConfig c = small("grpo", 1);
  ASSERT_TRUE(resolve(c));
  auto again = run_loop(c, {.run = root_ / "taken"}, {}, pool_);
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("already holds a run"), std::string::npos);
}

TEST_F(LoopTest, SupervisedWarmStartLiftsSorting) {
  RlConfig c = small("grpo", 1);
  c.task = "sort";
  c.prompts = 16;
  c.group = 8;
  c.lr = 2e-3;
  run(c, "cold");
  c.sft_steps = 60;
  const LoopResult warm = run(c, "warm");
  EXPECT_GT(warm.last.reward_mean, 0.15);
  EXPECT_EQ(warm.mismatch_max, 0.0);
}

TEST_F(LoopTest, TheReportHoldsCurvesRepliesAndNoOutsideReference) {
  run(small("grpo", 3), "r");
  ASSERT_TRUE(write_report(root_ / "r"));
  const std::string html = bytes("r/report.html");
  for (const char* part : {"Reward", "Exactly right", "Entropy", "Gradient norm", "Reply length",
                           "Before", "<svg", "prefers-color-scheme"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  EXPECT_EQ(html.find("http"), std::string::npos);
}

TEST(EntropyAlarm, NeedsAWholeWindowLowEntropyAndWrongReplies) {
  EXPECT_TRUE(entropy_collapsed(0.05, 0.5, kAlarmWindow, 0.1, 0.9));
  EXPECT_FALSE(entropy_collapsed(0.05, 0.95, kAlarmWindow, 0.1, 0.9));
  EXPECT_FALSE(entropy_collapsed(0.2, 0.5, kAlarmWindow, 0.1, 0.9));
  EXPECT_FALSE(entropy_collapsed(0.05, 0.5, kAlarmWindow - 1, 0.1, 0.9));
}

TEST(Overlong, FallsLinearlyOverTheLastTokens) {
  // DAPO's figures: 20,480 tokens, the last 4,096.
  EXPECT_EQ(overlong_penalty(16384, 20480, 4096), 0.0);
  EXPECT_EQ(overlong_penalty(18432, 20480, 4096), -0.5);
  EXPECT_EQ(overlong_penalty(20480, 20480, 4096), -1.0);
  EXPECT_EQ(overlong_penalty(20480, 20480, 0), 0.0);
}

TEST(SampleSeed, DependsOnEveryCoordinate) {
  const std::uint64_t s = sample_seed(1, 2, 3, 4);
  EXPECT_EQ(s, sample_seed(1, 2, 3, 4));
  EXPECT_NE(s, sample_seed(9, 2, 3, 4));
  EXPECT_NE(s, sample_seed(1, 9, 3, 4));
  EXPECT_NE(s, sample_seed(1, 2, 9, 4));
  EXPECT_NE(s, sample_seed(1, 2, 3, 9));
}

TEST(Sparkline, ScalesToItsRange) {
  EXPECT_EQ(sparkline({0, 1}, 10), "▁█");
  EXPECT_EQ(sparkline({1, 1, 1}, 10), "▄▄▄");
  EXPECT_EQ(sparkline({}, 10), "");
}

}  // namespace
}  // namespace weft::rl
