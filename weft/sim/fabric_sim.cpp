#include "weft/sim/fabric_sim.h"

#include <algorithm>
#include <array>
#include <limits>

#include "weft/base/rng.h"
#include "weft/sim/fluid_net.h"

namespace weft::sim {
namespace {

constexpr std::string_view kNames[] = {"ecmp", "planned", "optimal", "spray", "static"};

// Links of the fluid model, in this order: NICs out and in, ports out and in, uplinks up and down.
struct Links {
  const cluster::LeafSpine& fabric;
  std::vector<double> capacity;

  explicit Links(const cluster::LeafSpine& f) : fabric(f) {
    const auto fill = [&](std::int64_t count, double rate) {
      capacity.insert(capacity.end(), static_cast<std::size_t>(count), rate);
    };
    const double nic = f.nic_gbps > 0 ? f.nic_gbps : std::numeric_limits<double>::infinity();
    fill(2 * f.nics(), nic);
    fill(std::int64_t{2} * f.nics() * f.planes, f.port_gbps);
    fill(std::int64_t{2} * f.uplinks(), f.uplink_gbps);
  }
  void add(FlowSet& flows, plan::FlowEnds ends, plan::FlowPath path) const {
    const std::int32_t nics = fabric.nics(), ports = nics * fabric.planes;
    std::array<std::int32_t, 6> links = {ends.from, nics + ends.to,
                                         2 * nics + ends.from * fabric.planes + path.plane,
                                         2 * nics + ports + ends.to * fabric.planes + path.plane};
    std::size_t count = 4;
    if (path.spine >= 0) {
      const std::int32_t first = 2 * nics + 2 * ports;
      links[count++] = first + fabric.uplink(path.plane, fabric.leaf_of(ends.from), path.spine);
      links[count++] =
          first + fabric.uplinks() + fabric.uplink(path.plane, fabric.leaf_of(ends.to), path.spine);
    }
    flows.add(std::span(links).first(count));
  }
};

// The paths that work between two NICs.
std::vector<plan::FlowPath> working_paths(const cluster::LeafSpine& fabric, plan::FlowEnds ends) {
  std::vector<plan::FlowPath> paths;
  const std::int32_t from = fabric.leaf_of(ends.from), to = fabric.leaf_of(ends.to);
  for (std::int32_t plane = 0; plane < fabric.planes; ++plane) {
    if (from == to) paths.push_back({plane, -1});
    for (std::int32_t spine = 0; from != to && spine < fabric.spines; ++spine) {
      if (fabric.works(plane, from, spine, to)) paths.push_back({plane, spine});
    }
  }
  return paths;
}

Result<plan::FlowPath> hashed(const cluster::LeafSpine& fabric, plan::FlowEnds ends, Rng& rng) {
  const auto paths = working_paths(fabric, ends);
  if (paths.empty()) {
    return fail(ErrorCode::kUnavailable, "no path from NIC {} to NIC {}", ends.from, ends.to);
  }
  return paths[rng.next_below(static_cast<std::uint32_t>(paths.size()))];
}

bool usable(const cluster::LeafSpine& fabric, plan::FlowEnds ends, plan::FlowPath path) {
  return path.spine < 0 ||
         fabric.works(path.plane, fabric.leaf_of(ends.from), path.spine, fabric.leaf_of(ends.to));
}

Result<std::vector<plan::FlowPath>> paths_of(const FabricSpec& spec,
                                             const cluster::LeafSpine& whole,
                                             const cluster::LeafSpine& broken,
                                             const std::vector<plan::FlowEnds>& flows,
                                             PathPolicy policy, std::uint64_t seed) {
  Rng rng(seed, RngUse::kTask, 0x6661);
  std::vector<plan::FlowPath> paths;
  if (policy == PathPolicy::kEcmp) {
    for (const plan::FlowEnds ends : flows) {
      WEFT_ASSIGN(const auto path, hashed(broken, ends, rng));
      paths.push_back(path);
    }
    return paths;
  }
  if (policy == PathPolicy::kOptimal) return plan::optimal_paths(broken, flows);
  plan::TrafficPlanner planner(whole);
  for (const plan::FlowEnds ends : flows) WEFT_TRY(planner.place(ends));
  if (policy == PathPolicy::kPlanned) {
    for (std::int32_t i = 0; i < spec.broken; ++i) {
      WEFT_TRY(planner.break_uplink(whole.uplink(0, 0, i)));
    }
  }
  for (std::size_t i = 0; i < flows.size(); ++i) {
    paths.push_back(planner.path(static_cast<std::int32_t>(i)));
    if (usable(broken, flows[i], paths[i])) continue;
    WEFT_ASSIGN(paths[i], hashed(broken, flows[i], rng));
  }
  return paths;
}

}  // namespace

std::string_view to_string(PathPolicy policy) { return kNames[static_cast<std::size_t>(policy)]; }

Result<PathPolicy> path_policy(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == std::end(kNames)) {
    return fail(ErrorCode::kInvalidArgument,
                "no path policy is called '{}': ecmp, planned, optimal, spray, static", name);
  }
  return static_cast<PathPolicy>(found - std::begin(kNames));
}

Result<cluster::LeafSpine> make_fabric(const FabricSpec& spec) {
  if (spec.nodes < 2 || spec.rails < 1 || spec.nodes_per_leaf < 1 || spec.lanes < 1) {
    return fail(ErrorCode::kInvalidArgument,
                "{} nodes, {} rails, {} nodes a leaf, {} lanes: at least 2, 1, 1, 1", spec.nodes,
                spec.rails, spec.nodes_per_leaf, spec.lanes);
  }
  if (spec.nodes % spec.nodes_per_leaf != 0) {
    return fail(ErrorCode::kInvalidArgument, "{} nodes are no multiple of {} a leaf", spec.nodes,
                spec.nodes_per_leaf);
  }
  if (spec.jobs < 1 || spec.nodes / spec.jobs < 2) {
    return fail(ErrorCode::kInvalidArgument, "{} jobs on {} nodes: a ring needs two", spec.jobs,
                spec.nodes);
  }
  if (!(spec.oversubscription > 0) || spec.broken < 0 || spec.broken >= spec.spines) {
    return fail(ErrorCode::kInvalidArgument,
                "oversubscription {}: above 0; {} broken uplinks: fewer than the {} spines",
                spec.oversubscription, spec.broken, spec.spines);
  }
  cluster::LeafSpine fabric{
      .planes = spec.planes,
      .leaves = spec.nodes / spec.nodes_per_leaf * spec.rails,
      .spines = spec.spines,
      .nics_per_leaf = spec.nodes_per_leaf,
      .port_gbps = spec.port_gbps,
      .uplink_gbps = spec.nodes_per_leaf * spec.port_gbps / (spec.spines * spec.oversubscription),
      .nic_gbps = spec.nic_gbps};
  WEFT_TRY(check(fabric));
  return fabric;
}

std::vector<plan::FlowEnds> ring_flows(const FabricSpec& spec, const cluster::LeafSpine& fabric) {
  const auto nic = [&](std::int32_t node, std::int32_t rail) {
    const std::int32_t leaf = node / spec.nodes_per_leaf * spec.rails + rail;
    return leaf * fabric.nics_per_leaf + node % spec.nodes_per_leaf;
  };
  std::vector<plan::FlowEnds> flows;
  for (std::int32_t job = 0; job < spec.jobs; ++job) {
    for (std::int32_t node = job; node < spec.nodes; node += spec.jobs) {
      const std::int32_t next = node + spec.jobs < spec.nodes ? node + spec.jobs : job;
      for (std::int32_t rail = 0; rail < spec.rails; ++rail) {
        flows.insert(flows.end(), static_cast<std::size_t>(spec.lanes),
                     {nic(node, rail), nic(next, rail)});
      }
    }
  }
  return flows;
}

Result<FabricReport> simulate_fabric(const FabricSpec& spec, PathPolicy policy,
                                     std::uint64_t seed) {
  WEFT_ASSIGN(const cluster::LeafSpine whole, make_fabric(spec));
  cluster::LeafSpine broken = whole;
  if (spec.broken > 0) broken.broken.resize(static_cast<std::size_t>(whole.uplinks()));
  for (std::int32_t i = 0; i < spec.broken; ++i) {
    broken.broken[static_cast<std::size_t>(whole.uplink(0, 0, i))] = true;
  }
  const auto flows = ring_flows(spec, whole);
  const Links links(whole);
  FlowSet set;
  FabricReport report;
  plan::TrafficLoads loads(whole);
  const auto lanes = static_cast<std::size_t>(spec.lanes);
  std::vector<std::size_t> first;  // flow of the model at which each hop begins
  if (policy == PathPolicy::kSpray) {
    for (std::size_t i = 0; i < flows.size(); i += lanes) {
      first.push_back(set.size());
      const auto paths = working_paths(broken, flows[i]);
      if (paths.empty()) {
        return fail(ErrorCode::kUnavailable, "no path from NIC {} to NIC {}", flows[i].from,
                    flows[i].to);
      }
      for (const plan::FlowPath path : paths) links.add(set, flows[i], path);
    }
  } else {
    WEFT_ASSIGN(const auto paths, paths_of(spec, whole, broken, flows, policy, seed));
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (i % lanes == 0) first.push_back(set.size());
      links.add(set, flows[i], paths[i]);
      loads.add(whole, flows[i], paths[i], 1);
    }
    report.most_on_uplink = loads.most_on_uplinks();
  }
  first.push_back(set.size());
  const auto rates = max_min_rates(links.capacity, set);
  report.flows = set.size();
  report.job_gbps.assign(static_cast<std::size_t>(spec.jobs),
                         std::numeric_limits<double>::infinity());
  std::size_t hop = 0;
  for (std::int32_t job = 0; job < spec.jobs; ++job) {
    for (std::int32_t node = job; node < spec.nodes; node += spec.jobs) {
      for (std::int32_t rail = 0; rail < spec.rails; ++rail, ++hop) {
        double sum = 0, least = std::numeric_limits<double>::infinity();
        for (std::size_t f = first[hop]; f < first[hop + 1]; ++f) {
          sum += rates[f];
          least = std::min(least, rates[f]);
        }
        double& rate = report.job_gbps[static_cast<std::size_t>(job)];
        rate = std::min(rate, policy == PathPolicy::kSpray ? sum : least * spec.lanes);
      }
    }
  }
  return report;
}

}  // namespace weft::sim
