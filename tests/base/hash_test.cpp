#include "weft/base/hash.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "weft/base/file.h"

namespace weft {
namespace {

// FIPS 180-2, appendix B.
TEST(Sha256, GivesThePublishedVectors) {
  EXPECT_EQ(to_hex(sha256(bytes_of("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256(bytes_of(""))),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 million;
  const std::string chunk(1000, 'a');
  for (int i = 0; i < 1000; ++i) million.update(bytes_of(chunk));
  EXPECT_EQ(to_hex(million.finish()),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, OfAFile) {
  const auto path = std::filesystem::temp_directory_path() / "weft-sha256-test";
  ASSERT_TRUE(write_file_atomic(path, "abc"));
  EXPECT_EQ(sha256_file(path).value(), to_hex(sha256(bytes_of("abc"))));
  std::filesystem::remove(path);
  EXPECT_EQ(sha256_file(path).error().code, ErrorCode::kNotFound);
}

// The empty input's digests in xxHash's specification and sanity tests.
TEST(Xxh3, GivesThePublishedVectors) {
  EXPECT_EQ(xxh3_64({}), 0x2D06800538D394C2U);
  EXPECT_EQ(xxh3_128({}).hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_NE(xxh3_64(bytes_of("a")), xxh3_64(bytes_of("a"), 1));
}

TEST(Hex, GoesBothWaysAndNamesWhatIsWrong) {
  EXPECT_EQ(to_hex(from_hex("00fF7a").value()), "00ff7a");
  EXPECT_FALSE(from_hex("abc").has_value());
  EXPECT_FALSE(from_hex("zz").has_value());
}

}  // namespace
}  // namespace weft
