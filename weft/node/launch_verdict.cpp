#include <csignal>
#include <cstring>

#include "weft/node/launch.h"

namespace weft::node {

std::string_view to_string(LaunchOutcome outcome) {
  constexpr std::string_view kNames[] = {"done", "rank-failed", "interrupted", "timed-out"};
  return kNames[static_cast<std::size_t>(outcome)];
}

std::string RankEnd::sentence() const {
  const std::string who = fmt::format("rank {} (process {})", rank, pid);
  if (signal != 0) {
    return fmt::format("{} was killed by signal {} ({}) after {:.2f} s", who, signal,
                       ::strsignal(signal), seconds);
  }
  return fmt::format("{} ended with code {} after {:.2f} s", who, code, seconds);
}

std::string LaunchVerdict::sentence() const {
  switch (outcome) {
    case LaunchOutcome::kDone:
      return "all ranks ended with code 0";
    case LaunchOutcome::kRankFailed:
      return first.sentence();
    case LaunchOutcome::kInterrupted:
      return fmt::format("stopped by signal {} ({})", signal, ::strsignal(signal));
    case LaunchOutcome::kTimedOut:
      return "stopped at the time limit";
  }
  return "";
}

int LaunchVerdict::exit_code() const {
  switch (outcome) {
    case LaunchOutcome::kDone:
      return 0;
    case LaunchOutcome::kRankFailed:
      return first.signal != 0 ? 128 + first.signal : first.code;
    case LaunchOutcome::kInterrupted:
      return 128 + signal;
    case LaunchOutcome::kTimedOut:
      return 124;
  }
  return 1;
}

}  // namespace weft::node
