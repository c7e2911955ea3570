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

int run_app(CLI::App& app, int argc, char** argv, int& exit_code) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // --help is one of them
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  return exit_code;
}

}  // namespace weft::cli
