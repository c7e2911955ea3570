#include "weft/base/deadline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using namespace std::chrono_literals;

TEST(Deadline, PassesAndSaysWhatDidNotFinish) {
  const Deadline past = Deadline::after(-1s);
  EXPECT_TRUE(past.expired());
  EXPECT_EQ(past.left_ms(), 0);
  EXPECT_EQ(past.check("the drain").error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(past.check("the drain").error().message, ::testing::HasSubstr("the drain"));
  const Deadline later = Deadline::after(1h);
  EXPECT_FALSE(later.expired());
  EXPECT_TRUE(later.check("x"));
  EXPECT_EQ(later.earlier(past).time(), past.time());
}

TEST(Deadline, WaitsDoNotEndEarlyAndTheFarFutureSaturates) {
  EXPECT_EQ(Deadline::after(900us).left_ms(), 1);
  const Deadline far = Deadline::after(std::chrono::nanoseconds::max());
  EXPECT_FALSE(far.expired());
  EXPECT_GT(far.left_ms(), 1'000'000'000);
}

}  // namespace
}  // namespace weft
