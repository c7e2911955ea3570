#include "weft/comm/link_shaper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::comm {
namespace {

TEST(LinkShaper, ReadsItsText) {
  const auto shape = parse_link_shape("rate=8M,delay=5ms,jitter=100us,loss=0.25,drop=0.5,seed=7");
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->bits_per_s, 8e6);
  EXPECT_EQ(shape->delay_ns, 5'000'000);
  EXPECT_EQ(shape->jitter_ns, 100'000);
  EXPECT_EQ(shape->loss, 0.25);
  EXPECT_EQ(shape->drop, 0.5);
  EXPECT_EQ(shape->seed, 7u);
  EXPECT_TRUE(parse_link_shape("cut")->cut);
  EXPECT_FALSE(parse_link_shape("")->shapes());
}

TEST(LinkShaper, BadTextIsRefusedByItsKey) {
  const std::pair<const char*, const char*> cases[] = {
      {"rate=fast", "rate"},   {"rate=8X", "rate"},      {"delay=5", "delay"},
      {"loss=2", "loss"},      {"drop=-1", "drop"},      {"speed=1", "speed"},
      {"jitter=", "jitter"},   {"delay=1e30s", "delay"}, {"rate=nan", "rate"},
      {"rate=8M,,", "unknown"}};
  for (const auto& [text, key] : cases) {
    const auto shape = parse_link_shape(text);
    ASSERT_FALSE(shape) << text;
    EXPECT_THAT(shape.error().message, ::testing::HasSubstr(key)) << text;
  }
}

TEST(LinkShaper, SerialisesAtTheRateThenDelays) {
  LinkShape shape;
  shape.bits_per_s = 8e6;  // a byte a microsecond
  shape.delay_ns = 1'000'000;
  LinkShaper link(shape);
  EXPECT_EQ(link.admit(0, 1000).release_ns, 2'000'000);
  EXPECT_EQ(link.admit(0, 1000).release_ns, 3'000'000);            // behind the first
  EXPECT_EQ(link.admit(50'000'000, 1000).release_ns, 52'000'000);  // the line was idle
}

TEST(LinkShaper, JitterKeepsOrderReorderDoesNot) {
  LinkShape shape;
  shape.delay_ns = 1000;
  shape.jitter_ns = 1'000'000;
  LinkShaper jitter(shape);
  std::int64_t last = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t out = jitter.admit(i * 1000, 10).release_ns;
    EXPECT_GE(out, last);
    last = out;
  }
  LinkShape reorder;
  reorder.reorder = 0.3;
  LinkShaper mixed(reorder);
  int overtaken = 0;
  last = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t out = mixed.admit(i * 1000, 10).release_ns;
    overtaken += out < last ? 1 : 0;
    last = out;
  }
  EXPECT_GT(overtaken, 100);
}

TEST(LinkShaper, DropsAndDuplicatesAsOftenAsAskedAndTheSameForASeed) {
  LinkShape shape;
  shape.drop = 0.1;
  shape.duplicate = 0.2;
  shape.seed = 5;
  LinkShaper a(shape), b(shape);
  int dropped = 0, doubled = 0;
  for (int i = 0; i < 10'000; ++i) {
    const Passage p = a.admit(i, 10);
    EXPECT_EQ(p.copies, b.admit(i, 10).copies);
    dropped += p.copies == 0 ? 1 : 0;
    doubled += p.copies == 2 ? 1 : 0;
  }
  EXPECT_NEAR(dropped, 1000, 100);
  EXPECT_NEAR(doubled, 1800, 150);
}

TEST(LinkShaper, ACutLinkHoldsAndLossCostsTime) {
  LinkShape cut;
  cut.cut = true;
  EXPECT_TRUE(LinkShaper(cut).admit(0, 1).held);
  LinkShape lossy;
  lossy.loss = 1;
  lossy.resend_ns = 1000;
  EXPECT_GE(LinkShaper(lossy).admit(0, 1).release_ns, 16 * 1000);
}

}  // namespace
}  // namespace weft::comm
