#include "weft/cli/learn/learn_commands.h"

// What main() calls in this module; see weft/cli/main.cpp.
extern "C" __attribute__((visibility("default"))) int weft_learn_main(int argc, char** argv) {
  CLI::App app{"Weft runs large models: post-trains, trains, serves and explains them."};
  app.name("weft");
  app.require_subcommand(1);
  int exit_code = 0;
  weft::cli::add_bench_command(app, exit_code);
  weft::cli::add_train_command(app, exit_code);
  weft::cli::add_rl_command(app, exit_code);
  return weft::cli::run_app(app, argc, argv, exit_code);
}
