// Replays a job trace against a queue policy on a cluster: the policy object is the one
// that the live controller calls.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/sched/view.h"
#include "weft/workload/job.h"

namespace weft::sim {

// What the simulator runs: a trace's job with its true time on a compact placement.
struct SimJob {
  double submit_s = 0;
  double run_s = 0;
  std::int32_t gpus = 1;
  double spread_speed = 1;    // on more nodes than needed
  double expected_run_s = 0;  // what the policy is told; 0: run_s
};

struct JobSimOptions {
  std::vector<std::int32_t> node_gpus;
  double restart_s = 0;          // lost at each start after a preemption
  bool delays = false;           // attribute the waiting, O(queue) at each change
  std::size_t record_views = 0;  // keep this many views with their decisions, thinned
  std::function<void(std::size_t done, std::size_t of)> progress = {};
};

// Why a job waited; the parts sum to its wait.
struct DelayParts {
  double capacity_s = 0;       // fewer GPUs free than it needs
  double fragmentation_s = 0;  // enough free, but no placement that the policy accepts
  double ordering_s = 0;       // it would fit: held back for a job before it, or for the round
  double sum() const { return capacity_s + fragmentation_s + ordering_s; }
};

struct JobOutcome {
  double first_start_s = -1, finish_s = -1;
  double wait_s = 0;  // submission to first start, and from each preemption to the next start
  std::int32_t preemptions = 0;
  std::int32_t nodes = 0;  // of the last run
  bool spread = false;     // the last run was on more nodes than needed
  DelayParts delay = {};
};

struct RecordedDecision {
  Json view, decision;
};

struct JobSimReport {
  std::string policy;
  std::vector<JobOutcome> jobs;
  std::int64_t refused = 0;  // larger than the whole cluster
  double mean_jct_s = 0, p50_jct_s = 0, p99_jct_s = 0, mean_wait_s = 0, makespan_s = 0;
  double utilisation = 0;  // GPU seconds held / (GPUs x makespan)
  double mean_queue = 0;
  std::int64_t max_queue = 0, preemptions = 0, spread = 0;
  std::uint64_t events = 0, decisions = 0;
  DelayParts delay;  // totals
  struct Sample {
    double time_s;
    std::int32_t queued, busy;
  };
  std::vector<Sample> timeline;  // at most 2,048 points, evenly thinned
  std::vector<RecordedDecision> recorded;
};

// Jobs by submission. kInvalidArgument when the cluster has no GPU or an action of the
// policy does not fit (a defect of the policy, named with the job and the time).
Result<JobSimReport> simulate_jobs(const std::vector<SimJob>& jobs,
                                   const sched::SchedPolicy& policy, const JobSimOptions& options);
Json to_json(const JobSimReport& report);

// The jobs of a trace; seed 0 as they are, others with each arrival given the size and
// time of a job drawn with replacement. Jobs without a run time or GPUs are left out.
std::vector<SimJob> sim_jobs(const workload::JobTrace& trace, std::uint64_t seed);

}  // namespace weft::sim
