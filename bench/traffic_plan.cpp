// weft bench run traffic-plan: paths for the lanes of 15,360 NICs, one thread.
#include <chrono>

#include "bench/bench.h"
#include "weft/plan/traffic_policy.h"
#include "weft/sim/fabric_sim.h"
#include "weft/sim/fluid_net.h"

namespace weft::bench {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

// 1,920 machines of 8 NICs in 60 rings, 16 lanes: 245,760 flows. Placing one looks at 2 planes
// of 32 spines: 64 pairs of counters, some 100 ns.
Status run_traffic_plan(const BenchOptions& options, ThreadPool& /*pool*/, const Report& report) {
  const sim::FabricSpec spec{
      .nodes = 1920, .nodes_per_leaf = 32, .spines = 32, .lanes = 16, .jobs = 60};
  WEFT_ASSIGN(const cluster::LeafSpine fabric, sim::make_fabric(spec));
  const auto flows = sim::ring_flows(spec, fabric);
  const auto count = static_cast<double>(flows.size());
  const auto greedy = [&]() -> Result<double> {
    plan::TrafficPlanner planner(fabric);
    const auto begin = std::chrono::steady_clock::now();
    for (const plan::FlowEnds ends : flows) WEFT_TRY(planner.place(ends));
    return count / seconds_since(begin);
  };
  const auto optimal = [&]() -> Result<double> {
    const auto begin = std::chrono::steady_clock::now();
    WEFT_TRY(plan::optimal_paths(fabric, flows));
    return count / seconds_since(begin);
  };
  const auto replan = [&]() -> Result<double> {
    plan::TrafficPlanner planner(fabric);
    for (const plan::FlowEnds ends : flows) WEFT_TRY(planner.place(ends));
    const auto begin = std::chrono::steady_clock::now();
    WEFT_TRY(planner.break_uplink(fabric.uplink(0, 0, 0)));
    return 1 / seconds_since(begin);
  };
  const auto rates = [&]() -> Result<double> {
    const auto begin = std::chrono::steady_clock::now();
    WEFT_TRY(sim::simulate_fabric(spec, sim::PathPolicy::kPlanned, 0));
    return count / seconds_since(begin);
  };
  const struct {
    const char *name, *unit;
    std::function<Result<double>()> run;
  } cases[] = {{"greedy/flows=245760", "flows/s", greedy},
               {"optimal/flows=245760", "flows/s", optimal},
               {"broken-uplink/flows=245760", "re-plans/s", replan},
               {"planned-and-shared/flows=245760", "flows/s", rates}};
  for (const auto& each : cases) {
    Case bench_case{
        .name = each.name, .unit = each.unit, .ours = each.run, .peer = {}, .peer_version = {}};
    if (bench_case.name.find(options.only) == std::string::npos) continue;
    WEFT_ASSIGN(const CaseResult result, run_case(bench_case, options.rounds));
    report(result);
  }
  return {};
}

}  // namespace weft::bench
