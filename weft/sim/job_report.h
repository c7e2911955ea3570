// Comparison of policies over seeds, as a table and as a page with plots.
#pragma once

#include <string>
#include <vector>

#include "weft/sim/job_sim.h"

namespace weft::sim {

// Mean over seeds and the half width of its 95 % interval (Student's t; 0 for one seed).
struct Estimate {
  double mean = 0, half_width = 0;
};
struct PolicyRow {
  std::string policy;
  int seeds = 0;
  Estimate mean_jct_s, p99_jct_s, mean_wait_s, makespan_s, utilisation, mean_queue, preemptions;
  // Of the mean JCT against the first policy, seed by seed (paired): > 1 is better than it.
  Estimate speedup;
  double capacity_share = 0, fragmentation_share = 0,
         ordering_share = 0;  // of the wait; 0: not asked
};

// `rows`: to_json(JobSimReport) of each policy's seeds, policy by policy in `policies`' order.
std::vector<PolicyRow> compare_policies(const std::vector<Json>& rows,
                                        const std::vector<std::string>& policies);
Json to_json(const std::vector<PolicyRow>& table);
std::string table_text(const std::vector<PolicyRow>& table);

// A self-contained page: the table; queue length and busy GPUs over time; the distribution of
// completion times, of each policy's first seed.
std::string job_report_html(const workload::JobTrace& trace,
                            const std::vector<JobSimReport>& reports,
                            const std::vector<SimJob>& jobs, const std::vector<PolicyRow>& table);

}  // namespace weft::sim
