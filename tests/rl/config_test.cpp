#include "weft/rl/config.h"

#include <gtest/gtest.h>

namespace weft::rl {
namespace {

std::string reason(RlConfig config) {
  const Status status = resolve(config);
  return status ? "" : status.error().message;
}
#define EXPECT_REASON(config, part) \
  EXPECT_NE(reason(config).find(part), std::string::npos) << reason(config)

TEST(RlConfig, AlgorithmsMeanWhatTheirPapersSay) {
  for (const char* algo :
       {"grpo", "drgrpo", "dapo", "rloo", "gspo", "ppo", "cispo", "sapo", "reinforce"}) {
    RlConfig c;
    c.algo = algo;
    EXPECT_EQ(reason(c), "") << algo;
  }
  RlConfig dapo;
  dapo.algo = "dapo";
  ASSERT_TRUE(resolve(dapo));
  EXPECT_EQ(loss_config(dapo).clip_high, 0.28);
  EXPECT_EQ(loss_config(dapo).aggregation, Aggregation::kTokenMean);
  EXPECT_TRUE(dapo.dynamic_sampling);
  RlConfig drgrpo;
  drgrpo.algo = "drgrpo";
  ASSERT_TRUE(resolve(drgrpo));
  EXPECT_EQ(loss_config(drgrpo).aggregation, Aggregation::kTokenSumOverConstant);
  EXPECT_EQ(loss_config(drgrpo).token_sum_constant, 2.0);  // the longest modadd reply
  EXPECT_EQ(advantage_kind(drgrpo), AdvantageKind::kDrGrpo);
  RlConfig gspo;
  gspo.algo = "gspo";
  ASSERT_TRUE(resolve(gspo));
  EXPECT_EQ(loss_config(gspo).clip_low, 3e-4);
}

TEST(RlConfig, WhatIsGivenBesideTheAlgorithmWins) {
  RlConfig c;
  c.algo = "grpo";
  c.aggregation = "token-mean";
  c.clip_high = 0.3;
  ASSERT_TRUE(resolve(c));
  EXPECT_EQ(loss_config(c).aggregation, Aggregation::kTokenMean);
  EXPECT_EQ(loss_config(c).clip_high, 0.3);
  EXPECT_EQ(loss_config(c).clip_low, 0.2);
}

TEST(RlConfig, BadConfigurationsAreRefusedWithAReason) {
  RlConfig c;
  c.group = 1;
  EXPECT_REASON(c, "group is 1");
  c.algo = "ppo";
  EXPECT_EQ(reason(c), "");
  EXPECT_REASON((RlConfig{.temperature = 0.0}), "greedy decoding is not a policy");
  EXPECT_REASON((RlConfig{.clip_low = 1.5}), "clip-low");
  EXPECT_REASON((RlConfig{.task = "chess"}), "task is 'chess'");
  EXPECT_REASON((RlConfig{.algo = "a2c"}), "algo is 'a2c'");
  EXPECT_REASON((RlConfig{.task = "words"}), "needs --model");
  EXPECT_REASON((RlConfig{.task = "gsm8k"}), "gsm8k:FILE");
  EXPECT_REASON((RlConfig{.mini_batches = 33}), "mini_batches");
  EXPECT_REASON((RlConfig{.kl_target = 0.1}), "kl_target without kl");
  EXPECT_REASON((RlConfig{.overlong_tokens = 9}), "overlong_tokens");
  EXPECT_REASON((RlConfig{.decoupled = true}), "decoupled");
  EXPECT_REASON((RlConfig{.schedule = "zigzag"}), "schedule");
  RlConfig sapo{.algo = "sapo", .correction = "token", .decoupled = true};
  EXPECT_REASON(sapo, "SAPO with the decoupled loss");
}

TEST(RlConfig, SurvivesJsonAndIsAlreadyResolvedThen) {
  RlConfig c{.task = "sort", .algo = "dapo", .seed = 7, .lr = 1.25e-4, .entropy = 0.02};
  ASSERT_TRUE(resolve(c));
  auto again = rl_config_from_json(to_json(c));
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_TRUE(resolve(*again));
  EXPECT_EQ(dump_json(to_json(*again)), dump_json(to_json(c)));
  EXPECT_EQ(again->lr, 1.25e-4);
  Json missing = to_json(c);
  missing.erase("group");
  EXPECT_FALSE(rl_config_from_json(missing));
}

TEST(RlConfig, ReadsTomlWithTheSameKeysAsTheFlags) {
  RlConfig c;
  ConfigSchema schema;
  declare(c, schema);
  ASSERT_TRUE(schema.read_text("task = 'copy'\nalgo = 'rloo'\nentropy = 0.02\nsteps = 10\n",
                               "c.toml", std::vector<std::string>{"steps=20"}));
  EXPECT_EQ(c.task, "copy");
  EXPECT_EQ(c.steps, 20);
  EXPECT_EQ(c.entropy, 0.02);
  const Status typo = schema.read_text("entrpy = 0.02\n", "c.toml");
  ASSERT_FALSE(typo);
  EXPECT_NE(typo.error().message.find("entropy"), std::string::npos) << typo.error().message;
  EXPECT_GT(config_keys().size(), 40U);
}

}  // namespace
}  // namespace weft::rl
