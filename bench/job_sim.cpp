// weft bench run job-sim: how fast a job trace replays under each queue policy.
#include "weft/sim/job_sim.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "bench/bench.h"
#include "weft/workload/job_reader.h"

namespace weft::bench {
namespace {

namespace fs = std::filesystem;
constexpr double kEventsPerSecond = 1e6;  // aimed at
constexpr std::int32_t kNodeGpus = 8;

Result<std::vector<sim::SimJob>> philly_jobs() {
  const char* data = std::getenv("WEFT_DATA");
  const fs::path path = fs::path(data != nullptr ? data : "") / "cluster-traces/philly/philly.csv";
  if (data == nullptr || !fs::exists(path)) {
    return fail(ErrorCode::kUnavailable,
                "no job trace to replay: set WEFT_DATA to a directory with "
                "cluster-traces/philly/philly.csv");
  }
  WEFT_ASSIGN(const auto loaded, workload::load_jobs(path));
  return sim::sim_jobs(loaded.trace, 0);
}

}  // namespace

// On 3,000 GPUs the trace hardly queues (it keeps 375 busy on average); on 600 it does at
// its peaks, so decisions are taken over a long queue too.
Status run_job_sim(const BenchOptions& options, ThreadPool&, const Report& report) {
  struct Run {
    std::string name, policy;
    std::size_t nodes;
  };
  std::vector<Run> wanted;
  for (const std::size_t nodes : {std::size_t{375}, std::size_t{75}}) {
    for (const std::string& policy : sched::policy_names()) {
      const std::string name = nodes == 375
                                   ? fmt::format("philly/{}", policy)
                                   : fmt::format("philly/{}/gpus={}", policy, nodes * kNodeGpus);
      if (name.find(options.only) != std::string::npos) wanted.push_back({name, policy, nodes});
    }
  }
  if (wanted.empty()) return {};
  WEFT_ASSIGN(const std::vector<sim::SimJob> jobs, philly_jobs());
  for (const Run& run : wanted) {
    WEFT_ASSIGN(const auto policy, sched::make_policy(run.policy));
    const sim::JobSimOptions cluster{.node_gpus = std::vector<std::int32_t>(run.nodes, kNodeGpus)};
    double seconds = 0;
    Case one;
    one.name = run.name;
    one.unit = "events/s";
    one.limit = kEventsPerSecond;
    one.ours = [&]() -> Result<double> {
      const auto begin = std::chrono::steady_clock::now();
      WEFT_ASSIGN(const sim::JobSimReport result, sim::simulate_jobs(jobs, *policy, cluster));
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      return static_cast<double>(result.events) / seconds;
    };
    WEFT_ASSIGN(const CaseResult result, run_case(one, options.rounds));
    report(result);
    if (!options.quiet) {
      std::fprintf(stderr, "weft bench: %s: %zu jobs in %.3f s, simulated\n", run.name.c_str(),
                   jobs.size(), seconds);
    }
  }
  return {};
}

}  // namespace weft::bench
