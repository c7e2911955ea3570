// Published model files that Weft can tell from damaged copies by their digest.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "weft/base/result.h"

namespace weft::model {

enum class KnownFileVerdict {
  kUnknown,  // nothing of this size and beginning is known: nothing can be said
  kIntact,   // byte for byte the published file
  kDiffers,  // size and beginning of a known file, other content
};

struct KnownFileCheck {
  KnownFileVerdict verdict = KnownFileVerdict::kUnknown;
  std::string name;      // of the published file
  std::string sha256;    // of this file; empty when it was not read
  std::string expected;  // of the published file
};

// Compares with the published files. Files above `max_bytes` are not digested
// (kUnknown), so that loading a large model does not read it twice.
Result<KnownFileCheck> check_known_file(const std::filesystem::path& path, std::int64_t max_bytes);

}  // namespace weft::model
