#include <cstdio>

#include "weft/cli/commands.h"

namespace weft::cli {

int report(const Error& error) {
  std::fprintf(stderr, "weft: error: %s\n", error.message.c_str());
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kUnsupported:
    case ErrorCode::kOutOfRange:
    case ErrorCode::kCorrupt:
      return kExitUsage;
    default:
      return kExitFailed;
  }
}

}  // namespace weft::cli
