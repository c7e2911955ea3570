#include <algorithm>
#include <map>

#include "weft/base/units.h"
#include "weft/workload/job_reader.h"

namespace weft::workload {

JobInfo describe_jobs(const JobTrace& trace) {
  JobInfo info;
  std::vector<double> runs, gpus, waits, gaps;
  std::map<std::string, std::int64_t> ends, vcs;
  double gpu_time = 0, large_time = 0;
  std::int64_t single = 0, large = 0;
  for (const Job& job : trace.jobs) {
    ++info.jobs;
    ++ends[std::string(to_string(job.end))];
    if (job.vc != 0) ++vcs[trace.vcs[job.vc]];
    if (job.gpu_milli > 0) ++info.fractional;
    gpus.push_back(job.gpus);
    if (job.gpus == 1) ++single;
    if (job.gpus >= 8) ++large;
    if (job.start_s >= 0) waits.push_back(job.start_s - job.submit_s);
    if (gaps.size() + 1 < static_cast<std::size_t>(info.jobs)) {
      gaps.push_back(job.submit_s - trace.jobs[gaps.size()].submit_s);
    }
    if (job.run_s < 0) continue;
    ++info.with_run;
    runs.push_back(job.run_s);
    gpu_time += job.run_s * job.gpus;
    if (job.gpus >= 8) large_time += job.run_s * job.gpus;
  }
  const auto share = [&](double part, double whole) { return whole > 0 ? part / whole : 0; };
  info.span_s = trace.last_submit_s() - (trace.jobs.empty() ? 0 : trace.jobs.front().submit_s);
  info.gpu_hours = gpu_time / 3600;
  info.single_gpu_share = share(static_cast<double>(single), static_cast<double>(info.jobs));
  info.large_share = share(static_cast<double>(large), static_cast<double>(info.jobs));
  info.large_gpu_time_share = share(large_time, gpu_time);
  info.run_s = summarise(std::move(runs));
  info.gpus = summarise(std::move(gpus));
  info.wait_s = summarise(std::move(waits));
  info.gaps_s = summarise(std::move(gaps));
  info.ends.assign(ends.begin(), ends.end());
  info.vcs.assign(vcs.begin(), vcs.end());
  return info;
}

Json info_json(const JobInfo& info) {
  Json ends, vcs;
  for (const auto& [name, count] : info.ends) ends[name] = count;
  for (const auto& [name, count] : info.vcs) vcs[name] = count;
  return {{"jobs", info.jobs},
          {"with_run_time", info.with_run},
          {"fractional", info.fractional},
          {"span_s", info.span_s},
          {"gpu_hours", info.gpu_hours},
          {"single_gpu_share", info.single_gpu_share},
          {"large_share", info.large_share},
          {"large_gpu_time_share", info.large_gpu_time_share},
          {"run_s", info.run_s.json()},
          {"gpus", info.gpus.json()},
          {"wait_s", info.wait_s.json()},
          {"gap_s", info.gaps_s.json()},
          {"ends", ends},
          {"vcs", vcs}};
}

std::string info_text(const JobTrace& trace, const JobInfo& info) {
  std::string out = fmt::format("{} ({}): {} jobs over {}\n", trace.source, trace.format, info.jobs,
                                human_duration(info.span_s));
  const auto row = [&](const char* name, const Summary& s) {
    if (s.count == 0) return;
    out += fmt::format(
        "  {:<16} mean {:>10.1f}  p50 {:>10.1f}  p90 {:>10.1f}  p99 {:>10.1f}  max {:>10.1f}\n",
        name, s.mean, s.p50, s.p90, s.p99, s.max);
  };
  row("run time, s", info.run_s);
  row("wait, s", info.wait_s);
  row("arrival gap, s", info.gaps_s);
  row("GPUs", info.gpus);
  out += fmt::format(
      "  {:.1f} % on one GPU; {:.1f} % on 8 or more, with {:.1f} % of {:.0f} GPU hours\n",
      100 * info.single_gpu_share, 100 * info.large_share, 100 * info.large_gpu_time_share,
      info.gpu_hours);
  if (info.with_run < info.jobs) {
    out += fmt::format("  {} jobs have no run time (work in steps, or never started)\n",
                       info.jobs - info.with_run);
  }
  if (info.fractional > 0)
    out += fmt::format("  {} jobs ask for a share of one GPU\n", info.fractional);
  for (const auto& [name, count] : info.ends) {
    if (name != "unknown") out += fmt::format("  {:>9} {}\n", count, name);
  }
  if (!info.vcs.empty()) out += fmt::format("  {} virtual clusters\n", info.vcs.size());
  return out;
}

}  // namespace weft::workload
