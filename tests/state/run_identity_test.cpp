#include "weft/state/run_identity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "weft/base/file.h"

namespace weft::state {
namespace {

class RunIdentity : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::filesystem::path root_ =
      std::filesystem::temp_directory_path() / ("weft_run_identity_" + std::to_string(getpid()));
};

TEST_F(RunIdentity, IsMadeOnceAndKept) {
  const auto first = identify_run(root_);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(*first);
  EXPECT_EQ(*identify_run(root_), *first);
  std::filesystem::remove(root_ / "run.json");
  EXPECT_NE(*identify_run(root_), *first);
}

TEST_F(RunIdentity, ADamagedFileIsNamedAndLeftAlone) {
  for (const char* text : {"", "{}", "[]", "{\"run_id\": 5}", "{\"run_id\": \"run-12\"}"}) {
    ASSERT_TRUE(write_file_atomic(root_ / "run.json", text));
    const auto id = identify_run(root_);
    ASSERT_FALSE(id) << text;
    EXPECT_NE(id.error().message.find("run.json"), std::string::npos) << id.error().message;
    EXPECT_EQ(*read_file(root_ / "run.json"), text);
  }
}

TEST_F(RunIdentity, AMissingDirectoryIsAnError) { EXPECT_FALSE(identify_run(root_ / "none")); }

}  // namespace
}  // namespace weft::state
