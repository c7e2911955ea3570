// weft sim sched: queue policies on a job trace, side by side.
#include <fmt/ranges.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>

#include "weft/base/file.h"
#include "weft/base/progress.h"
#include "weft/base/thread_pool.h"
#include "weft/cli/commands.h"
#include "weft/cluster/topology_reader.h"
#include "weft/sim/job_report.h"
#include "weft/sim/job_sim.h"
#include "weft/workload/job_reader.h"

namespace weft::cli {
namespace {

struct SimArguments {
  std::string trace, format, cluster, html, out;
  std::vector<std::string> policies = {"fifo", "backfill", "srtf"};
  int nodes = 0, gpus_per_node = 8, seeds = 1;
  double restart_s = 0;
  std::uint64_t seed = 0;
  bool json = false, quiet = false, delays = false;
};

Result<std::vector<std::int32_t>> node_sizes(const SimArguments& arguments) {
  if (arguments.cluster.empty() == (arguments.nodes == 0)) {
    return fail(ErrorCode::kInvalidArgument,
                "give the cluster either as --nodes N --gpus-per-node G or as --cluster FILE");
  }
  if (arguments.cluster.empty()) {
    return std::vector<std::int32_t>(static_cast<std::size_t>(arguments.nodes),
                                     arguments.gpus_per_node);
  }
  WEFT_ASSIGN(const cluster::Topology topology, cluster::read_topology(arguments.cluster));
  const auto gpus = topology.gpus_below();
  std::vector<std::int32_t> sizes;
  for (const cluster::PartId node : topology.of_kind(cluster::PartKind::kNode)) {
    const auto at = static_cast<std::size_t>(node);
    sizes.push_back(topology.parts[at].health == cluster::Health::kUp ? gpus[at] : 0);
  }
  return sizes;
}

// Rows of an earlier, interrupted run: "policy/seed" -> report.
Result<std::map<std::string, Json>> finished_rows(const std::string& path) {
  std::map<std::string, Json> rows;
  std::ifstream file(path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const auto row = parse_json(line, fmt::format("{}:{}", path, number));
    if (!row) break;  // cut short by the interruption: computed again
    WEFT_ASSIGN(const auto policy, json_field<std::string>(*row, "policy"));
    WEFT_ASSIGN(const auto seed, json_field<std::int64_t>(*row, "seed"));
    rows[fmt::format("{}/{}", policy, seed)] = *row;
  }
  return rows;
}

Result<int> simulate(const SimArguments& arguments) {
  WEFT_ASSIGN(const auto loaded,
              workload::load_jobs(arguments.trace, {.format = arguments.format}));
  WEFT_ASSIGN(const auto nodes, node_sizes(arguments));
  std::vector<std::unique_ptr<sched::SchedPolicy>> policies;
  for (const std::string& name : arguments.policies) {
    WEFT_ASSIGN(auto policy, sched::make_policy(name));
    policies.push_back(std::move(policy));
  }
  std::map<std::string, Json> done;
  if (!arguments.out.empty()) {
    WEFT_ASSIGN(done, finished_rows(arguments.out));
    std::string kept;
    for (const auto& [key, row] : done) kept += dump_json(row) + "\n";
    WEFT_TRY(write_file_atomic(arguments.out, kept));
  }
  const auto seeds = static_cast<std::size_t>(arguments.seeds);
  const std::size_t runs = policies.size() * seeds;
  std::vector<Json> rows(runs);
  std::vector<sim::JobSimReport> first_seed(policies.size());
  std::size_t left_out = loaded.trace.jobs.size();
  std::vector<std::vector<sim::SimJob>> jobs(seeds);
  for (std::size_t s = 0; s < seeds; ++s) jobs[s] = sim::sim_jobs(loaded.trace, arguments.seed + s);
  left_out -= jobs[0].size();
  if (jobs[0].empty()) {
    return fail(ErrorCode::kInvalidArgument, "{}: no job has both GPUs and a run time ({} rows)",
                arguments.trace, loaded.trace.jobs.size());
  }
  std::mutex mutex;
  Status failed;
  Progress progress("simulate", static_cast<std::int64_t>(runs), "runs",
                    {.quiet = arguments.quiet});
  ThreadPool pool;
  pool.parallel_for(static_cast<std::int64_t>(runs), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const std::size_t p = i / seeds, s = i % seeds;
      const std::string key = fmt::format("{}/{}", arguments.policies[p], arguments.seed + s);
      const bool need_timeline = s == 0 && !arguments.html.empty();
      if (const auto row = done.find(key); row != done.end() && !need_timeline) {
        rows[i] = row->second;
        progress.advance();
        continue;
      }
      auto report = sim::simulate_jobs(
          jobs[s], *policies[p],
          {.node_gpus = nodes, .restart_s = arguments.restart_s, .delays = arguments.delays});
      const std::lock_guard lock(mutex);
      progress.advance();
      if (!report) {
        failed = std::unexpected(report.error());
        return;
      }
      rows[i] = sim::to_json(*report);
      rows[i]["policy"] = arguments.policies[p];
      rows[i]["seed"] = arguments.seed + s;
      if (!arguments.out.empty()) {
        std::ofstream(arguments.out, std::ios::app) << dump_json(rows[i]) << "\n";
      }
      if (s == 0) first_seed[p] = std::move(*report);
    }
  });
  progress.finish();
  WEFT_TRY(failed);
  const auto table = sim::compare_policies(rows, arguments.policies);
  if (!arguments.html.empty()) {
    WEFT_TRY(write_file_atomic(arguments.html,
                               sim::job_report_html(loaded.trace, first_seed, jobs[0], table)));
  }
  if (arguments.json) {
    std::printf("%s\n", dump_json({{"trace", arguments.trace},
                                   {"nodes", nodes.size()},
                                   {"left_out", left_out},
                                   {"runs", rows},
                                   {"table", sim::to_json(table)}})
                            .c_str());
    return 0;
  }
  std::printf(
      "%s: %zu jobs (%zu left out: no run time or no GPU), %zu nodes, %zu seeds; simulated\n%s",
      arguments.trace.c_str(), jobs[0].size(), left_out, nodes.size(), seeds,
      sim::table_text(table).c_str());
  return 0;
}

}  // namespace

void add_sim_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("sim", "Simulate clusters: the same policies as live");
  command->require_subcommand(1);
  add_sim_fabric_command(*command, exit_code);
  const auto arguments = std::make_shared<SimArguments>();
  CLI::App* verb = command->add_subcommand("sched", "Replay a job trace under queue policies");
  verb->footer(
      "Example: weft sim sched --trace philly.csv --nodes 375 --policy fifo,backfill,srtf --seeds "
      "5");
  verb->add_option("--trace", arguments->trace, "job trace")->required();
  verb->add_option("--format", arguments->format,
                   "of the trace (default: told from its first line)");
  verb->add_option("--policy", arguments->policies,
                   fmt::format("which, of {}", fmt::join(sched::policy_names(), ", ")))
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--nodes", arguments->nodes, "number of equal nodes")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_option("--gpus-per-node", arguments->gpus_per_node)
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  verb->add_option("--cluster", arguments->cluster, "topology file instead of --nodes");
  verb->add_option(
          "--seeds", arguments->seeds,
          "runs for each policy; the first is the trace itself, the others give each arrival "
          "the size and time of a job drawn from the trace")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  verb->add_option("--seed", arguments->seed, "of the first run")->capture_default_str();
  verb->add_option("--restart", arguments->restart_s,
                   "seconds lost when a preempted job starts again")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  verb->add_flag("--delays", arguments->delays, "say why jobs waited (slower)");
  verb->add_option("--out", arguments->out,
                   "a line of JSON for each run; existing ones are not run again");
  verb->add_option("--html", arguments->html, "write a report with plots");
  verb->add_flag("--json", arguments->json, "print JSON");
  verb->add_flag("--quiet", arguments->quiet, "no progress on stderr");
  verb->callback([arguments, &exit_code] {
    const auto result = simulate(*arguments);
    exit_code = result ? *result : report(result.error());
  });
}

}  // namespace weft::cli
