// Paths of long flows over a leaf-spine fabric, chosen so that no link carries more of them
// than it must (the path planning of C4, HPCA'25): pure choice for one flow, a planner that
// keeps the loads, and the off-line optimum by edge colouring. Loads count flows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/decision.h"
#include "weft/base/result.h"
#include "weft/cluster/leaf_spine.h"

namespace weft::plan {

struct FlowEnds {
  std::int32_t from = 0, to = 0;  // NICs
};
struct FlowPath {
  std::int32_t plane = 0;
  std::int32_t spine = -1;  // -1: both ends are on one leaf
  bool operator==(const FlowPath&) const = default;
};

// Flows on every link.
struct TrafficLoads {
  explicit TrafficLoads(const cluster::LeafSpine& fabric);
  std::vector<std::int32_t> out, in;   // ports, [nic * planes + plane]
  std::vector<std::int32_t> up, down;  // LeafSpine::uplink()
  // Adds `count` (may be negative) flows on a path.
  void add(const cluster::LeafSpine& fabric, FlowEnds ends, FlowPath path, std::int32_t count);
  std::int32_t most_on_uplinks() const;
};

// The plane with the least loaded ports, then in it the working spine with the least max of
// both uplinks, then the least sum, then by a rotation that depends on the ends. A plane
// without a working spine is passed over. kUnavailable: none is left.
struct FlowView {
  const cluster::LeafSpine* fabric;
  const TrafficLoads* loads;
  FlowEnds ends;
};
Result<FlowPath> choose_path(const FlowView& view);
// The same with the load of the path and the planes that were rejected.
Result<Decision<FlowPath>> decide(const FlowView& view);

// Places flows one after the other. Not thread-safe. O(planes * spines) a flow.
class TrafficPlanner {
 public:
  // `fabric` must be right by check() and is copied.
  explicit TrafficPlanner(cluster::LeafSpine fabric);

  // Returns the flow's number.
  Result<std::int32_t> place(FlowEnds ends);
  void remove(std::int32_t flow);
  // Takes an uplink out and places its flows anew; returns their numbers. kUnavailable: a
  // flow has no path left; it keeps none, and the others are placed.
  Result<std::vector<std::int32_t>> break_uplink(std::int32_t uplink);

  const cluster::LeafSpine& fabric() const { return fabric_; }
  const TrafficLoads& loads() const { return loads_; }
  FlowPath path(std::int32_t flow) const { return flows_[static_cast<std::size_t>(flow)].path; }

 private:
  struct Flow {
    FlowEnds ends;
    FlowPath path;
    bool placed;
  };
  cluster::LeafSpine fabric_;
  TrafficLoads loads_;
  std::vector<Flow> flows_;
};

// All flows at once on a fabric without broken links: the plane with the least loaded ports, of
// equal ones that with fewer flows of the two leaves, and within a plane a colouring of the flows
// (edges between leaves) with as many colours as the busiest leaf has flows (Koenig 1916), `spines`
// of them sharing a link: no uplink carries more than ceil(flows of its leaf / spines).
// kUnsupported where links are broken.
Result<std::vector<FlowPath>> optimal_paths(const cluster::LeafSpine& fabric,
                                            std::span<const FlowEnds> flows);

// No plan puts fewer flows on its busiest uplink: the flows of the busiest leaf over all
// its working uplinks, rounded up.
std::int32_t least_uplink_load(const cluster::LeafSpine& fabric, std::span<const FlowEnds> flows);

}  // namespace weft::plan
