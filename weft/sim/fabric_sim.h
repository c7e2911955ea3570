// All-reduce rings of several jobs on a leaf-spine fabric, under hashed, planned and sprayed
// paths: the rate that each job's ring gets. A model (FluidNet), not a measurement: no packets,
// no losses, no pauses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/cluster/leaf_spine.h"
#include "weft/plan/traffic_policy.h"

namespace weft::sim {

struct FabricSpec {
  std::int32_t nodes = 16, rails = 8;  // NICs of a node; rail r of a group of nodes shares a leaf
  std::int32_t nodes_per_leaf = 8, planes = 2, spines = 8;
  std::int32_t lanes = 8;  // flows from a NIC to the next one's of its ring
  double port_gbps = 200;
  double oversubscription = 1;  // ports of a leaf over its uplinks
  double nic_gbps = 362;        // what the machine behind a NIC can take (NVLink of an H800)
  std::int32_t jobs = 1;        // job j has nodes j, j + jobs, ...: its ring crosses leaves
  std::int32_t broken = 0;      // uplinks of leaf 0, plane 0 that fail after the flows were placed
};
Result<cluster::LeafSpine> make_fabric(const FabricSpec& spec);

enum class PathPolicy : std::uint8_t { kEcmp, kPlanned, kOptimal, kSpray, kStatic };
// ecmp: each lane's plane and spine by a hash; planned: plan::TrafficPlanner, flows of broken
// links placed anew; optimal: plan::optimal_paths; spray: every lane over all paths; static:
// planned, but flows of a broken link are hashed onto what is left.
std::string_view to_string(PathPolicy policy);
Result<PathPolicy> path_policy(std::string_view name);

struct FabricReport {
  std::vector<double> job_gbps;  // a NIC's rate in the slowest hop: lanes are equal parts
  std::int32_t most_on_uplink = 0;
  std::size_t flows = 0;
};
// Deterministic; `seed` is that of the hashes.
Result<FabricReport> simulate_fabric(const FabricSpec& spec, PathPolicy policy, std::uint64_t seed);

// The lanes of all jobs, hop by hop.
std::vector<plan::FlowEnds> ring_flows(const FabricSpec& spec, const cluster::LeafSpine& fabric);

}  // namespace weft::sim
