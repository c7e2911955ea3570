// The commands of `weft`, one file each. An adder registers its options and a
// callback; the callback returns through `exit_code`.
//
// Commands that need libtorch (train, rl, bench) live in weft/cli/learn and are
// linked into the module libweft_learn.so, which main() loads when one of them
// is called; their adders are declared in weft/cli/learn/learn_commands.h.
#pragma once

#include <CLI/CLI.hpp>

#include "weft/base/result.h"

namespace weft::cli {

// Exit codes: 0 done, 1 the work failed, 2 bad usage or input, 3 a stated check or
// SLO was not met, 130 interrupted.
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitCheck = 3;
inline constexpr int kExitInterrupted = 130;

// Prints "weft: error: ..." on stderr and gives the exit code for it.
int report(const Error& error);

// Parses the arguments and runs the command they name; gives what it left in `exit_code`, or
// kExitUsage after a sentence on stderr.
int run_app(CLI::App& app, int argc, char** argv, int& exit_code);

void add_data_command(CLI::App& app, int& exit_code);
void add_diag_command(CLI::App& app, int& exit_code);
void add_model_command(CLI::App& app, int& exit_code);
void add_fabric_command(CLI::App& app, int& exit_code);
void add_plan_command(CLI::App& app, int& exit_code);
void add_sim_command(CLI::App& app, int& exit_code);
void add_sim_fabric_command(CLI::App& sim_command, int& exit_code);
void add_run_command(CLI::App& app, int& exit_code);
void add_serve_command(CLI::App& app, int& exit_code);
void add_trace_command(CLI::App& app, int& exit_code);
void add_load_command(CLI::App& app, int& exit_code);
void add_chat_template_command(CLI::App& model_command,
                               int& exit_code);  // weft model chat-template
void add_generate_command(CLI::App& app, int& exit_code);
void add_model_eval_command(CLI::App& model_command, int& exit_code);     // of `weft model`
void add_tokenize_command(CLI::App& model_command, int& exit_code);       // under `weft model`
void add_model_inspect_command(CLI::App& model_command, int& exit_code);  // weft model inspect
void add_model_convert_command(CLI::App& model_command, int& exit_code);  // weft model convert

}  // namespace weft::cli
