#include "weft/base/id.h"

#include <gtest/gtest.h>

#include <thread>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace weft {
namespace {

struct PageTag {
  static constexpr std::string_view kPrefix = "page";
};
using PageId = Id<PageTag>;
static_assert(!std::is_convertible_v<PageId, RunId> && !std::is_constructible_v<PageId, RunId>);
static_assert(!std::is_convertible_v<std::uint64_t, RunId>);

TEST(Id, IsWrittenWithItsPrefixAndReadBack) {
  const RunId id(0x00f1a2b3c4d5e6f7);
  EXPECT_EQ(id.str(), "run-00f1a2b3c4d5e6f7");
  EXPECT_EQ(*RunId::parse(id.str()), id);
  EXPECT_EQ(*RunId::parse(RunId(~std::uint64_t{0}).str()), RunId(~std::uint64_t{0}));
}

TEST(Id, RefusesOtherFormsAndOtherKinds) {
  for (const char* text :
       {"", "run", "run-", "run-00f1a2b3c4d5e6f", "run-00f1a2b3c4d5e6f70", "run-00F1A2B3C4D5E6F7",
        "run-00f1a2b3c4d5e6fg", "run_00f1a2b3c4d5e6f7", "page-00f1a2b3c4d5e6f7",
        " run-00f1a2b3c4d5e6f7", "run-+0f1a2b3c4d5e6f7"}) {
    const auto id = RunId::parse(text);
    ASSERT_FALSE(id) << text;
    EXPECT_NE(id.error().message.find("run-"), std::string::npos) << id.error().message;
  }
  EXPECT_TRUE(PageId::parse("page-00f1a2b3c4d5e6f7"));
}

TEST(Id, FreshOnesDifferOverThreads) {
  std::vector<std::vector<RunId>> made(4);
  {
    std::vector<std::jthread> threads;
    for (auto& ids : made)
      threads.emplace_back([&ids] {
        for (int i = 0; i < 1000; ++i) ids.push_back(RunId::fresh());
      });
  }
  std::unordered_set<RunId> all;
  for (const auto& ids : made) all.insert(ids.begin(), ids.end());
  EXPECT_EQ(all.size(), 4000U);
  EXPECT_FALSE(all.contains(RunId()));
}

TEST(Id, TheDefaultNamesNothingAndComparesByBits) {
  EXPECT_FALSE(RunId());
  EXPECT_TRUE(RunId(1));
  EXPECT_LT(RunId(1), RunId(2));
}

}  // namespace
}  // namespace weft
