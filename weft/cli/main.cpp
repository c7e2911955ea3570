#include <dlfcn.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "weft/cli/commands.h"

namespace {

struct LearnCommand {
  const char* name;
  const char* description;
};
constexpr LearnCommand kLearnCommands[] = {
    {"train", "Train a model on text files"},
    {"rl", "Post-train a model by reinforcement learning"},
    {"bench", "Run benchmarks beside the best peer"},
};

bool needs_learn_module(const char* command) {
  for (const auto& learn : kLearnCommands) {
    if (std::strcmp(command, learn.name) == 0) return true;
  }
  return false;
}

// Runs the whole command line inside libweft_learn.so, found beside the binary
// (build tree) or in ../lib/weft (installed).
int run_learn_module(int argc, char** argv) {
  std::error_code error;
  const auto binary = std::filesystem::read_symlink("/proc/self/exe", error);
  std::string reason = error ? error.message() : "";
  for (const char* relative : {"libweft_learn.so", "../lib/weft/libweft_learn.so"}) {
    const auto path = binary.parent_path() / relative;
    if (!std::filesystem::exists(path, error)) continue;
    void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
      reason = dlerror();
      continue;
    }
    using Main = int (*)(int, char**);
    if (auto* run = reinterpret_cast<Main>(dlsym(module, "weft_learn_main"))) {
      return run(argc, argv);
    }
    reason = dlerror();
  }
  std::fprintf(
      stderr,
      "weft: error: `weft %s` needs libweft_learn.so beside the binary or in ../lib/weft (%s)\n",
      argv[1], reason.empty() ? "not there; build the target weft_learn" : reason.c_str());
  return weft::cli::kExitFailed;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  if (argc > 1 && needs_learn_module(argv[1])) return run_learn_module(argc, argv);

  CLI::App app{"Weft runs large models: post-trains, trains, serves and explains them."};
  app.name("weft");
  app.require_subcommand(1);
  app.set_version_flag("--version", "weft 0.1.0");
  int exit_code = 0;
  weft::cli::add_data_command(app, exit_code);
  weft::cli::add_diag_command(app, exit_code);
  weft::cli::add_model_command(app, exit_code);
  weft::cli::add_fabric_command(app, exit_code);
  weft::cli::add_plan_command(app, exit_code);
  weft::cli::add_sim_command(app, exit_code);
  weft::cli::add_run_command(app, exit_code);
  weft::cli::add_serve_command(app, exit_code);
  weft::cli::add_trace_command(app, exit_code);
  weft::cli::add_load_command(app, exit_code);
  // Listed for --help only: see run_learn_module.
  for (const auto& learn : kLearnCommands) app.add_subcommand(learn.name, learn.description);
  weft::cli::add_generate_command(app, exit_code);
  return weft::cli::run_app(app, argc, argv, exit_code);
}
