// The commands of `weft` that need libtorch: the contents of libweft_learn.so.
#pragma once

#include "weft/cli/commands.h"

namespace weft::cli {

void add_bench_command(CLI::App& app, int& exit_code);
void add_train_command(CLI::App& app, int& exit_code);
void add_rl_command(CLI::App& app, int& exit_code);

}  // namespace weft::cli
