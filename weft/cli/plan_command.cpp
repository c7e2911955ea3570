// weft plan traffic: a path for every lane of the rings on a leaf-spine fabric.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "weft/base/json.h"
#include "weft/cli/commands.h"
#include "weft/cli/fabric_options.h"
#include "weft/plan/traffic_policy.h"

namespace weft::cli {
namespace {

struct PlanArguments {
  sim::FabricSpec spec;
  std::string method = "greedy";
  bool json = false, explain = false;
};

struct Plan {
  std::vector<plan::FlowPath> paths;
  std::size_t moved = 0;  // flows placed anew after uplinks broke
  double place_s = 0, move_s = 0;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Result<Plan> make_plan(const PlanArguments& arguments, cluster::LeafSpine& fabric,
                       const std::vector<plan::FlowEnds>& flows) {
  Plan plan;
  auto begin = std::chrono::steady_clock::now();
  if (arguments.method == "optimal") {
    WEFT_ASSIGN(plan.paths, plan::optimal_paths(fabric, flows));
    plan.place_s = seconds_since(begin);
    return plan;
  }
  plan::TrafficPlanner planner(fabric);
  for (const plan::FlowEnds ends : flows) {
    if (arguments.explain) {
      WEFT_ASSIGN(const auto decision, plan::decide({&planner.fabric(), &planner.loads(), ends}));
      std::fprintf(stderr, "%s",
                   fmt::format("NIC {} -> {}: {}\n", ends.from, ends.to, decision.reason).c_str());
    }
    WEFT_TRY(planner.place(ends));
  }
  plan.place_s = seconds_since(begin);
  begin = std::chrono::steady_clock::now();
  for (std::int32_t i = 0; i < arguments.spec.broken; ++i) {
    WEFT_ASSIGN(const auto moved, planner.break_uplink(fabric.uplink(0, 0, i)));
    plan.moved += moved.size();
  }
  plan.move_s = seconds_since(begin);
  for (std::size_t i = 0; i < flows.size(); ++i) {
    plan.paths.push_back(planner.path(static_cast<std::int32_t>(i)));
  }
  fabric = planner.fabric();
  return plan;
}

Result<int> plan_traffic(const PlanArguments& arguments) {
  WEFT_ASSIGN(cluster::LeafSpine fabric, sim::make_fabric(arguments.spec));
  const auto flows = sim::ring_flows(arguments.spec, fabric);
  if (arguments.method == "optimal" && arguments.spec.broken > 0) {
    return fail(ErrorCode::kInvalidArgument, "--method optimal knows no broken uplinks: greedy");
  }
  WEFT_ASSIGN(const Plan plan, make_plan(arguments, fabric, flows));
  plan::TrafficLoads loads(fabric);
  for (std::size_t i = 0; i < flows.size(); ++i) loads.add(fabric, flows[i], plan.paths[i], 1);
  const std::int32_t bound = plan::least_uplink_load(fabric, flows);
  if (!arguments.json) {
    std::printf("%s", fmt::format("{} flows of {} NICs on {} uplinks: placed in {:.3f} s; at most "
                                  "{} on an uplink, no plan has fewer than {}\n",
                                  flows.size(), fabric.nics(), fabric.uplinks(), plan.place_s,
                                  loads.most_on_uplinks(), bound)
                          .c_str());
    if (arguments.spec.broken > 0) {
      std::printf("%s", fmt::format("{} uplinks broke: {} flows placed anew in {:.6f} s\n",
                                    arguments.spec.broken, plan.moved, plan.move_s)
                            .c_str());
    }
    return 0;
  }
  Json result{{"flows", Json::array()},  {"most_flows_on_an_uplink", loads.most_on_uplinks()},
              {"least_possible", bound}, {"place_s", plan.place_s},
              {"moved", plan.moved},     {"move_s", plan.move_s}};
  for (std::size_t i = 0; i < flows.size(); ++i) {
    result["flows"].push_back({{"from", flows[i].from},
                               {"to", flows[i].to},
                               {"plane", plan.paths[i].plane},
                               {"spine", plan.paths[i].spine}});
  }
  std::printf("%s\n", dump_json(result).c_str());
  return 0;
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("plan", "Decide where things go");
  command->require_subcommand(1);
  const auto arguments = std::make_shared<PlanArguments>();
  CLI::App* verb = command->add_subcommand(
      "traffic", "Paths of long flows over a leaf-spine fabric, so that no link has too many");
  verb->footer(
      "Examples:\n  weft plan traffic --jobs 8 --method optimal --json\n"
      "  weft plan traffic --nodes 1920 --nodes-per-leaf 32 --spines 32 --jobs 60 --break 1");
  add_fabric_options(*verb, arguments->spec);
  verb->add_option("--method", arguments->method,
                   "greedy: one flow after the other; optimal: all at once, no broken uplinks")
      ->check(CLI::IsMember({"greedy", "optimal"}))
      ->capture_default_str();
  verb->add_flag("--explain", arguments->explain, "why each flow got its path, on stderr");
  verb->add_flag("--json", arguments->json, "print JSON: every path");
  verb->callback([arguments, &exit_code] {
    const auto result = plan_traffic(*arguments);
    exit_code = result ? *result : report(result.error());
  });
}

}  // namespace weft::cli
