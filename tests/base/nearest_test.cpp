#include "weft/base/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace weft {
namespace {

TEST(Nearest, DistanceCountsEditsAndSwaps) {
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("stpes", "steps"), 1U);
  EXPECT_EQ(edit_distance("same", "same"), 0U);
}

TEST(Nearest, FarNamesAreNotOffered) {
  const std::vector<std::string> names = {"steps", "seed", "optimizer.rate"};
  EXPECT_EQ(nearest_name("step", names), "steps");
  EXPECT_EQ(nearest_name("train.rate", names), "optimizer.rate");
  EXPECT_EQ(nearest_name("batch", names), "");
  EXPECT_EQ(nearest_name("x", {}), "");
}

}  // namespace
}  // namespace weft
