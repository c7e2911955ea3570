// weft sim fabric: rings of jobs on a leaf-spine fabric under several ways to choose paths.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>

#include "weft/cli/commands.h"
#include "weft/cli/fabric_options.h"

namespace weft::cli {
namespace {

struct FabricArguments {
  sim::FabricSpec spec;
  std::vector<std::string> policies = {"ecmp", "planned"};
  std::uint64_t seed = 0;
  int seeds = 20;
  bool json = false;
};

// Rates of one policy over jobs and seeds.
struct Row {
  std::string policy;
  double mean = 0, least = 0, most = 0;  // Gb/s
  std::int32_t most_on_uplink = 0;
  std::vector<std::vector<double>> jobs;  // of each seed
};

Result<Row> run(const FabricArguments& arguments, const std::string& name) {
  WEFT_ASSIGN(const sim::PathPolicy policy, sim::path_policy(name));
  const bool hashes = policy == sim::PathPolicy::kEcmp || policy == sim::PathPolicy::kStatic;
  Row row{.policy = name, .jobs = {}};
  std::vector<double> all;
  for (int s = 0; s < (hashes ? arguments.seeds : 1); ++s) {
    WEFT_ASSIGN(const auto report, sim::simulate_fabric(arguments.spec, policy,
                                                        arguments.seed + static_cast<unsigned>(s)));
    all.insert(all.end(), report.job_gbps.begin(), report.job_gbps.end());
    row.jobs.push_back(report.job_gbps);
    row.most_on_uplink = std::max(row.most_on_uplink, report.most_on_uplink);
  }
  row.mean = std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  row.least = std::ranges::min(all);
  row.most = std::ranges::max(all);
  return row;
}

Result<int> simulate(const FabricArguments& arguments) {
  std::vector<Row> rows;
  for (const std::string& policy : arguments.policies) {
    WEFT_ASSIGN(auto row, run(arguments, policy));
    rows.push_back(std::move(row));
  }
  if (arguments.json) {
    Json result{{"simulated", true}, {"policies", Json::array()}};
    for (const Row& row : rows) {
      result["policies"].push_back({{"policy", row.policy},
                                    {"mean_gbps", row.mean},
                                    {"least_gbps", row.least},
                                    {"most_gbps", row.most},
                                    {"most_flows_on_an_uplink", row.most_on_uplink},
                                    {"ratio_to_first", row.mean / rows[0].mean},
                                    {"jobs_gbps", row.jobs}});
    }
    std::printf("%s\n", dump_json(result).c_str());
    return 0;
  }
  const sim::FabricSpec& spec = arguments.spec;
  std::printf(
      "%s", fmt::format("{} nodes of {} NICs, {} planes, {} spines, {}:1, {} lanes, {} "
                        "jobs, {} broken uplinks; simulated (fluid, max-min fair)\n"
                        "{:<10}{:>12}{:>10}{:>10}{:>18}{:>16}\n",
                        spec.nodes, spec.rails, spec.planes, spec.spines, spec.oversubscription,
                        spec.lanes, spec.jobs, spec.broken, "policy", "mean Gb/s", "least", "most",
                        "flows on a link", "to " + rows[0].policy)
                .c_str());
  for (const Row& row : rows) {
    const std::string flows = row.most_on_uplink == 0 ? "-" : fmt::format("{}", row.most_on_uplink);
    std::printf("%s", fmt::format("{:<10}{:>12.2f}{:>10.2f}{:>10.2f}{:>18}{:>15.2f}x\n", row.policy,
                                  row.mean, row.least, row.most, flows, row.mean / rows[0].mean)
                          .c_str());
  }
  return 0;
}

}  // namespace

void add_fabric_options(CLI::App& verb, sim::FabricSpec& spec) {
  const auto count = [&](const char* name, std::int32_t& value, const char* what, int most) {
    verb.add_option(name, value, what)->check(CLI::Range(0, most))->capture_default_str();
  };
  count("--nodes", spec.nodes, "machines", 1 << 20);
  count("--rails", spec.rails, "NICs of a machine", 64);
  count("--nodes-per-leaf", spec.nodes_per_leaf, "machines whose NICs of one rail share a leaf",
        4096);
  count("--planes", spec.planes, "planes; a NIC has a port in each", 16);
  count("--spines", spec.spines, "spines of a plane", 4096);
  count("--lanes", spec.lanes, "flows from a NIC to the next of its ring", 1024);
  count("--jobs", spec.jobs, "rings; job j has machines j, j + jobs, ...", 1 << 20);
  count("--break", spec.broken, "uplinks of the first leaf that fail once flows are placed", 4096);
  verb.add_option("--port-gbps", spec.port_gbps, "of a NIC's port")->capture_default_str();
  verb.add_option("--nic-gbps", spec.nic_gbps, "what a machine takes of a NIC; 0: no limit")
      ->capture_default_str();
  verb.add_option("--oversubscription", spec.oversubscription, "ports of a leaf over its uplinks")
      ->capture_default_str();
}

void add_sim_fabric_command(CLI::App& sim_command, int& exit_code) {
  const auto arguments = std::make_shared<FabricArguments>();
  CLI::App* verb = sim_command.add_subcommand(
      "fabric", "Rates of all-reduce rings on a leaf-spine fabric, by how paths are chosen");
  verb->footer(
      "Examples:\n  weft sim fabric --policy ecmp,planned\n"
      "  weft sim fabric --jobs 8 --oversubscription 2 --policy ecmp,planned,optimal,spray\n"
      "  weft sim fabric --jobs 8 --break 1 --policy static,planned");
  add_fabric_options(*verb, arguments->spec);
  verb->add_option("--policy", arguments->policies, "of ecmp, planned, optimal, spray, static")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--seeds", arguments->seeds, "hashes tried by ecmp and static")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  verb->add_option("--seed", arguments->seed, "of the first")->capture_default_str();
  verb->add_flag("--json", arguments->json, "print JSON");
  verb->callback([arguments, &exit_code] {
    const auto result = simulate(*arguments);
    exit_code = result ? *result : report(result.error());
  });
}

}  // namespace weft::cli
