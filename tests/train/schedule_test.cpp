#include "weft/train/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::train {
namespace {

TEST(Schedule, WarmsUpLinearlyToThePeak) {
  for (const ScheduleKind kind : {ScheduleKind::kConstant, ScheduleKind::kLinear,
                                  ScheduleKind::kCosine, ScheduleKind::kWsd}) {
    const Schedule s{.kind = kind, .peak = 2.0, .steps = 100, .warmup_steps = 4, .decay_steps = 10};
    EXPECT_DOUBLE_EQ(learning_rate(s, 0), 0.5);
    EXPECT_DOUBLE_EQ(learning_rate(s, 3), 2.0);
    EXPECT_DOUBLE_EQ(learning_rate(s, 4), 2.0);
  }
}

TEST(Schedule, FollowsTheFormulasOfTransformers) {
  const Schedule linear{.kind = ScheduleKind::kLinear, .peak = 1.0, .steps = 10, .warmup_steps = 2};
  EXPECT_DOUBLE_EQ(learning_rate(linear, 6), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(linear, 9), 0.125);
  const Schedule cosine{.kind = ScheduleKind::kCosine,
                        .peak = 1.0,
                        .steps = 10,
                        .warmup_steps = 2,
                        .final_fraction = 0.1};
  EXPECT_NEAR(learning_rate(cosine, 6), 0.55, 1e-12);
  const Schedule wsd{
      .kind = ScheduleKind::kWsd, .peak = 1.0, .steps = 10, .warmup_steps = 2, .decay_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 5), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 8), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 100), learning_rate(wsd, 9));
}

TEST(Schedule, RefusesWhatMakesNoSense) {
  EXPECT_THAT(validate({.peak = 0.0}).error().message, testing::HasSubstr("learning rate"));
  EXPECT_THAT(validate({.steps = 0}).error().message, testing::HasSubstr("steps"));
  EXPECT_THAT(validate({.steps = 5, .warmup_steps = 6}).error().message,
              testing::HasSubstr("warmup_steps"));
  EXPECT_THAT(validate({.steps = 5, .decay_steps = 6}).error().message,
              testing::HasSubstr("decay_steps"));
  EXPECT_THAT(validate({.final_fraction = 1.5}).error().message,
              testing::HasSubstr("final_fraction"));
  EXPECT_THAT(schedule_from_string("cosin").error().message, testing::HasSubstr("cosine"));
}

}  // namespace
}  // namespace weft::train
