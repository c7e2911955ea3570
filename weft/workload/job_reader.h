// Reads the job traces that are published: docs/formats/job-trace.md lists them.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/workload/job.h"
#include "weft/workload/row_tally.h"
#include "weft/workload/stats.h"
#include "weft/workload/trace_format.h"

namespace weft::workload {

struct JobReadOptions {
  std::string format = {};  // empty: told from the file
  bool strict = false;      // the first row that would be dropped or repaired is an error
};

struct LoadedJobs {
  JobTrace trace;
  RowTally tally;
};

// Reads line by line (one buffer and the rows kept), then sorts by submission. A row with
// no number where one is needed, a negative duration, an end before its start, no device
// or a name seen before is dropped and counted with its line and column.
Result<LoadedJobs> load_jobs(const std::filesystem::path& path, JobReadOptions options = {});

struct JobInfo {
  std::int64_t jobs = 0, with_run = 0, fractional = 0;
  double span_s = 0, gpu_hours = 0;
  double single_gpu_share = 0, large_share = 0, large_gpu_time_share = 0;  // large: 8 or more
  Summary run_s, gpus, wait_s, gaps_s;
  std::vector<std::pair<std::string, std::int64_t>> ends, vcs;
};
JobInfo describe_jobs(const JobTrace& trace);
Json info_json(const JobInfo& info);
std::string info_text(const JobTrace& trace, const JobInfo& info);

}  // namespace weft::workload
