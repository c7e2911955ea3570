// weft run -n N -- PROGRAM: ranks of a program on this machine.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "weft/base/json.h"
#include "weft/cli/commands.h"
#include "weft/node/launch.h"
#include "weft/node/process_tree.h"

namespace weft::cli {
namespace {

struct RunArguments {
  node::LaunchOptions options;
  double grace = 2;
  double time_limit = 0;
  std::string transport = "shm", logs, colour = "auto";
  bool no_pin = false, json = false, quiet = false;
};

// Colours that can be read on dark and light ground, in turns.
constexpr const char* kColours[] = {"36", "32", "33", "35", "34", "31"};

bool coloured(const std::string& choice, int fd) {
  if (choice != "auto") return choice == "always";
  const char* no = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return ::isatty(fd) != 0 && (no == nullptr || *no == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

void print(const Json& event) {
  std::printf("%s\n", dump_json(event).c_str());
  std::fflush(stdout);
}

Json to_json(const node::RankEnd& end) {
  return Json{{"rank", end.rank}, {"attempt", end.attempt}, {"pid", end.pid},
              {"code", end.code}, {"signal", end.signal},   {"seconds", end.seconds},
              {"told", end.told}};
}

node::LaunchListener json_listener() {
  node::LaunchListener listener;
  listener.started = [](std::uint32_t rank, std::uint32_t attempt, pid_t pid,
                        std::string_view cpus) {
    print(
        {{"event", "started"}, {"rank", rank}, {"attempt", attempt}, {"pid", pid}, {"cpus", cpus}});
  };
  listener.line = [](std::uint32_t rank, bool standard_error, std::string_view line) {
    print({{"event", "line"},
           {"rank", rank},
           {"stream", standard_error ? "stderr" : "stdout"},
           {"text", line}});
  };
  listener.ended = [](const node::RankEnd& end) {
    Json event{{"event", "ended"}};
    event.update(to_json(end));
    print(event);
  };
  listener.notice = [](const std::string& text) { print({{"event", "notice"}, {"text", text}}); };
  return listener;
}

node::LaunchListener text_listener(const RunArguments& arguments) {
  const bool colours[2] = {coloured(arguments.colour, 1), coloured(arguments.colour, 2)};
  const int width = static_cast<int>(std::to_string(arguments.options.ranks - 1).size());
  node::LaunchListener listener;
  listener.line = [=](std::uint32_t rank, bool standard_error, std::string_view line) {
    std::FILE* to = standard_error ? stderr : stdout;
    const std::string prefix = fmt::format("[{:>{}}]", rank, width);
    if (colours[standard_error ? 1 : 0]) {
      std::fprintf(to, "\033[%sm%s\033[0m ", kColours[rank % std::size(kColours)], prefix.c_str());
    } else {
      std::fprintf(to, "%s ", prefix.c_str());
    }
    std::fwrite(line.data(), 1, line.size(), to);
    std::fputc('\n', to);
    std::fflush(to);
  };
  if (!arguments.quiet) {
    listener.notice = [](const std::string& text) {
      std::fprintf(stderr, "weft run: %s\n", text.c_str());
    };
  }
  return listener;
}

int launch_ranks(const RunArguments& arguments) {
  const auto verdict =
      node::launch(arguments.options, arguments.json ? json_listener() : text_listener(arguments));
  if (!verdict) return report(verdict.error());
  if (arguments.json) {
    Json event{{"event", "verdict"},
               {"outcome", node::to_string(verdict->outcome)},
               {"text", verdict->sentence()},
               {"job", verdict->job},
               {"attempts", verdict->attempts},
               {"strays", verdict->strays},
               {"seconds", verdict->seconds},
               {"exit_code", verdict->exit_code()}};
    if (verdict->outcome == node::LaunchOutcome::kRankFailed) {
      event["first"] = to_json(verdict->first);
      event["last_lines"] = verdict->last_lines;
    }
    print(event);
    return verdict->exit_code();
  }
  const bool failed = verdict->outcome != node::LaunchOutcome::kDone;
  if (failed) {
    std::fprintf(stderr, "weft run: FAILED: %s", verdict->sentence().c_str());
    if (verdict->attempts > 1) std::fprintf(stderr, " (attempt %u)", verdict->attempts);
    std::fprintf(stderr, "\n");
    if (!verdict->last_lines.empty()) {
      std::fprintf(stderr, "weft run: its last lines on standard error:\n");
      for (const std::string& line : verdict->last_lines) {
        std::fprintf(stderr, "    %s\n", line.c_str());
      }
    }
  }
  if (verdict->strays > 0 && !arguments.quiet) {
    std::fprintf(stderr, "weft run: killed %zu process%s that ranks left behind\n", verdict->strays,
                 verdict->strays == 1 ? "" : "es");
  }
  if (arguments.options.trace && !arguments.quiet) {
    std::fprintf(stderr, "weft run: records are in /dev/shm/weft-%s\n", verdict->job.c_str());
  }
  return verdict->exit_code();
}

}  // namespace

void add_run_command(CLI::App& app, int& exit_code) {
  CLI::App* run = app.add_subcommand(
      "run",
      "Starts N ranks of a program on this machine, shows their output with prefixes, and ends\n"
      "all of them, with everything below them, when one fails or on Ctrl-C.\n\n"
      "Example: weft run -n 4 -- python3 train.py --steps 100");
  auto arguments = std::make_shared<RunArguments>();
  run->add_option("-n,--ranks", arguments->options.ranks, "number of ranks")
      ->check(CLI::Range(1U, node::kMostRanks))
      ->capture_default_str();
  run->add_option("--restart", arguments->options.restarts,
                  "start all ranks again, at most N times, after one failed")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  run->add_option("--grace", arguments->grace, "seconds from telling ranks to stop to killing them")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  run->add_option("--timeout", arguments->time_limit, "stop everything after so many seconds")
      ->check(CLI::Range(0.001, 1e8));
  run->add_option("--log-dir", arguments->logs, "also write rank-N.log into this directory");
  run->add_option("--job", arguments->options.job, "the job's name (default: a fresh one)");
  run->add_option("--transport", arguments->transport,
                  "how ranks that use weft/comm talk: shm or tcp")
      ->check(CLI::IsMember({"shm", "tcp"}))
      ->capture_default_str();
  run->add_flag("--trace", arguments->options.trace,
                "ranks that use weft/comm leave record rings (weft diag)");
  run->add_flag("--no-pin", arguments->no_pin, "do not give each rank CPUs of its own");
  run->add_option("--color", arguments->colour, "of prefixes: auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  run->add_flag("--json", arguments->json, "events as JSON lines on stdout");
  run->add_flag("--quiet", arguments->quiet, "no notices, only the ranks' output and failures");
  run->add_option("program", arguments->options.command, "the program and its arguments, after --")
      ->required();
  run->callback([arguments, &exit_code] {
    using std::chrono::duration_cast;
    using std::chrono::milliseconds;
    node::LaunchOptions& options = arguments->options;
    options.grace = duration_cast<milliseconds>(std::chrono::duration<double>(arguments->grace));
    options.time_limit =
        duration_cast<milliseconds>(std::chrono::duration<double>(arguments->time_limit));
    options.pin = !arguments->no_pin;
    options.shared_memory = arguments->transport == "shm";
    options.log_directory = arguments->logs;
    const auto code = node::run_guarded([&] { return launch_ranks(*arguments); });
    exit_code = code ? *code : report(code.error());
  });
}

}  // namespace weft::cli
