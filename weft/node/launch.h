// The local launcher: N ranks of one program on this machine, started together, watched
// together, ended together.
//
// Each rank gets a process group, a share of the CPUs, /dev/null as standard input, and the
// variables of docs/commands/run.md. When a rank ends with another code than 0 or by a
// signal, the others get SIGTERM at once and SIGKILL after `grace`, with all processes below
// them. The same happens on SIGINT, SIGTERM and SIGHUP (a second one kills at once), at the
// time limit, and at the end to whatever a rank left behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"

namespace weft::node {

struct LaunchOptions {
  std::vector<std::string> command;  // program (looked up in PATH) and its arguments
  std::uint32_t ranks = 1;           // at most kMostRanks
  std::string job = {};              // names shared memory; empty: a fresh "run-..." name
  bool pin = true;                   // CPUs split between the ranks (cpu_set.h)
  std::chrono::milliseconds grace{2000};
  std::chrono::milliseconds time_limit{0};   // of all attempts together; 0: none
  std::uint32_t restarts = 0;                // of all ranks, after one failed
  std::filesystem::path log_directory = {};  // rank-N.log, after a restart rank-N.restart-K.log
  bool shared_memory = true;                 // of weft/comm; false: TCP
  bool trace = false;                        // record rings, kept after the end
};
inline constexpr std::uint32_t kMostRanks = 1024;

// How one rank ended.
struct RankEnd {
  std::uint32_t rank = 0;
  std::uint32_t attempt = 0;
  pid_t pid = 0;
  int code = 0;    // exit code, when signal is 0
  int signal = 0;  // that killed it
  double seconds = 0;
  bool told = false;  // it ended after the launcher had told it to

  bool good() const { return code == 0 && signal == 0; }
  // "rank 2 (process 4711) was killed by signal 9 (Killed) after 3.20 s"
  std::string sentence() const;
};

enum class LaunchOutcome { kDone, kRankFailed, kInterrupted, kTimedOut };
std::string_view to_string(LaunchOutcome outcome);

struct LaunchVerdict {
  LaunchOutcome outcome = LaunchOutcome::kDone;
  RankEnd first;               // kRankFailed: who failed first in the last attempt
  int signal = 0;              // kInterrupted: which one came
  std::uint32_t attempts = 1;  // 1 + restarts that were used
  std::size_t strays = 0;      // processes that ranks left behind, killed
  double seconds = 0;
  std::string job;
  std::vector<std::string> last_lines;  // of the failed rank's standard error, at most 5

  std::string sentence() const;
  // 0; the rank's own code, or 128 + its signal; 130 after SIGINT, else 128 + signal; 124.
  int exit_code() const;
};

// What happens while it runs; any may be empty. Called by the launching thread.
struct LaunchListener {
  std::function<void(std::uint32_t rank, std::uint32_t attempt, pid_t pid, std::string_view cpus)>
      started = {};
  std::function<void(std::uint32_t rank, bool standard_error, std::string_view line)> line = {};
  std::function<void(const RankEnd&)> ended = {};
  std::function<void(const std::string&)> notice = {};  // "...; stopping 3 ranks"
};

// Blocks until all is over. kNotFound when there is no such program, kInvalidArgument for
// options that make no sense; then nothing runs. The process must have one thread, must be
// a subreaper (process_tree.h) and have no other children.
Result<LaunchVerdict> launch(const LaunchOptions& options, const LaunchListener& listener);

}  // namespace weft::node
