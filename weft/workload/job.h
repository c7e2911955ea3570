// Job traces in one schema: what was asked for, when, and what became of it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace weft::workload {

enum class JobEnd : std::uint8_t { kUnknown, kPassed, kKilled, kFailed, kRunning };
std::string_view to_string(JobEnd end);

// One job. Times in seconds from the trace's zero; -1 where the source has none.
// `run_s` is the time on the devices asked for, summed over attempts.
struct Job {
  double submit_s = 0;
  double start_s = -1, end_s = -1;
  double run_s = -1;  // -1: the source gives work in steps only
  double steps = -1;  // training steps, where the source gives them
  std::uint32_t vc = 0, user = 0, model = 0, name = 0;  // indices into JobTrace's tables
  std::int32_t gpus = 0;                                // whole devices; a share counts as one
  std::int32_t gpu_milli = 0;  // thousandths of one device, 1..999; 0: whole devices
  std::int32_t cpu_milli = 0;
  std::int64_t memory_mib = 0;
  JobEnd end = JobEnd::kUnknown;
  bool guaranteed = false;
};

// Rows by (submit, order in the file). The string tables hold "" at 0.
struct JobTrace {
  std::string source = {};  // file
  std::string format = {};
  std::vector<Job> jobs = {};
  std::vector<std::string> vcs = {""}, users = {""}, models = {""}, names = {""};
  std::optional<std::int64_t> zero_unix_ns = {};  // the date of time 0, where the source has dates

  double last_submit_s() const { return jobs.empty() ? 0 : jobs.back().submit_s; }
};

}  // namespace weft::workload
