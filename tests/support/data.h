// Where tests find the real inputs, which are not part of the project.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace weft::test {

// $WEFT_DATA, else ../shared/data beside the source tree.
std::filesystem::path data_dir();
// A fetched model's file, or empty when it is not in the cache.
std::filesystem::path smollm2_file();
bool slow_tests();  // WEFT_SLOW=1

}  // namespace weft::test

// Skips the test by name when the input file is absent.
#define WEFT_NEED_DATA(variable, relative)                                      \
  const std::filesystem::path variable = ::weft::test::data_dir() / (relative); \
  if (!std::filesystem::exists(variable)) GTEST_SKIP() << "no file " << variable
