#include "weft/serve/stop_matcher.h"

#include <gtest/gtest.h>

#include "weft/base/rng.h"

namespace weft::serve {
namespace {

TEST(StopMatcher, ShowsEverythingWithoutStops) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, HoldsBackWhatMayBecomeAStop) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.push("the E"), "the ");
  EXPECT_EQ(matcher.push("N"), "");
  EXPECT_EQ(matcher.push("emy E"), "ENemy ");
  EXPECT_EQ(matcher.push("ND and more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, GivesBackTheHeldEndOfAReplyThatDidNotStop) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.push("the EN"), "the ");
  EXPECT_EQ(matcher.finish(), "EN");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, TheFirstCompleteStopCounts) {
  StopMatcher matcher({"abcd", "bc"});
  EXPECT_EQ(matcher.push("xabcd"), "xa");
  EXPECT_TRUE(matcher.stopped());
  StopMatcher longest({"bc", "abc"});
  EXPECT_EQ(longest.push("xabcd"), "x");
}

// Random texts over two letters, cut at random places, give what a search over the
// whole text gives.
TEST(StopMatcher, DoesNotDependOnHowTheTextIsCut) {
  Rng rng(20261130, RngUse::kTest);
  for (int round = 0; round < 3000; ++round) {
    const auto word = [&](std::uint32_t longest) {
      std::string text;
      for (std::uint32_t n = 1 + rng.next_below(longest); n > 0; --n) {
        text += rng.next_below(2) == 0 ? 'a' : 'b';
      }
      return text;
    };
    const std::string text = word(24);
    const std::vector<std::string> stops{word(4), word(5)};
    std::string expected = text;
    for (std::size_t end = 1; end <= text.size() && expected == text; ++end) {
      std::size_t first = std::string::npos;
      for (const std::string& stop : stops) {
        if (std::string_view(text).substr(0, end).ends_with(stop)) {
          first = std::min(first, end - stop.size());
        }
      }
      if (first != std::string::npos) {
        expected = text.substr(0, first);
        break;
      }
    }
    StopMatcher matcher(stops);
    std::string shown;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = 1 + rng.next_below(5);
      shown += matcher.push(std::string_view(text).substr(at, length));
      at += length;
    }
    shown += matcher.finish();
    ASSERT_EQ(shown, expected) << text << " / " << stops[0] << " / " << stops[1];
  }
}

}  // namespace
}  // namespace weft::serve
