#include <csignal>
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

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app{"Weft runs large models: post-trains, trains, serves and explains them."};
  app.name("weft");
  app.require_subcommand(1);
  app.set_version_flag("--version", "weft 0.1.0");
  int exit_code = 0;
  CLI11_PARSE(app, argc, argv);
  return exit_code;
}
