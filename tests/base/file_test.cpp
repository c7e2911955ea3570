#include "weft/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace weft {
namespace {

namespace fs = std::filesystem;

class File : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / fmt::format("weft-file-test-{}", ::getpid());
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  fs::path dir_;
};

TEST_F(File, AtomicWritesReplaceAndLeaveNothingBeside) {
  const fs::path path = dir_ / "a.txt";
  ASSERT_TRUE(write_file_atomic(path, "one"));
  ASSERT_TRUE(write_file_atomic(path, "two"));
  EXPECT_EQ(read_file(path).value(), "two");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
}

TEST_F(File, AFailedWriteLeavesTheOldFile) {
  const fs::path path = dir_ / "folder";
  fs::create_directories(path / "child");
  EXPECT_FALSE(write_file_atomic(path, "x").has_value());
  EXPECT_TRUE(fs::is_directory(path / "child"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
  EXPECT_FALSE(write_file_atomic(dir_ / "absent" / "x", "x").has_value());
}

TEST_F(File, MapsGiveTheBytesAndSurviveMoves) {
  const fs::path path = dir_ / "m";
  ASSERT_TRUE(write_file_atomic(path, "hello"));
  auto map = MappedFile::open(path).value();
  MappedFile other = std::move(map);
  ASSERT_EQ(other.bytes().size(), 5U);
  EXPECT_EQ(static_cast<char>(other.bytes()[4]), 'o');
  ASSERT_TRUE(write_file_atomic(dir_ / "empty", ""));
  EXPECT_TRUE(MappedFile::open(dir_ / "empty").value().bytes().empty());
}

TEST_F(File, ErrorsNameTheFile) {
  const auto absent = MappedFile::open(dir_ / "absent");
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message, ::testing::HasSubstr("absent"));
  EXPECT_EQ(read_file(dir_).error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(write_file_atomic(dir_ / "big", std::string(100, 'x')));
  EXPECT_EQ(read_file(dir_ / "big", 99).error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(read_file(dir_ / "big", 100).value().size(), 100U);
  EXPECT_EQ(read_file("/dev/zero", 1000).error().code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace weft
