#include "weft/plan/traffic_policy.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace weft::plan {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// What a path costs, least first.
using Cost = std::tuple<std::int32_t, std::int32_t, std::int32_t>;

struct Candidate {
  FlowPath path;
  Cost cost;
};

// The best path within a plane, if any works.
bool best_of_plane(const FlowView& view, std::int32_t plane, Candidate& best) {
  const cluster::LeafSpine& fabric = *view.fabric;
  const TrafficLoads& loads = *view.loads;
  const std::int32_t from = fabric.leaf_of(view.ends.from), to = fabric.leaf_of(view.ends.to);
  const std::int32_t ports = std::max(loads.out[at(view.ends.from * fabric.planes + plane)],
                                      loads.in[at(view.ends.to * fabric.planes + plane)]);
  if (from == to) {
    best = {{plane, -1}, {ports, 0, 0}};
    return true;
  }
  bool found = false;
  const std::int32_t start = (view.ends.from + 7 * view.ends.to) % fabric.spines;
  for (std::int32_t i = 0; i < fabric.spines; ++i) {
    const std::int32_t spine = (start + i) % fabric.spines;
    const std::int32_t up = fabric.uplink(plane, from, spine);
    const std::int32_t down = fabric.uplink(plane, to, spine);
    if (!fabric.works(up) || !fabric.works(down)) continue;
    const std::int32_t a = loads.up[at(up)], b = loads.down[at(down)];
    const Cost cost{ports, std::max(a, b), a + b};
    if (!found || cost < best.cost) best = {{plane, spine}, cost};
    found = true;
  }
  return found;
}

Status check_ends(const cluster::LeafSpine& fabric, FlowEnds ends) {
  const auto valid = [&](std::int32_t nic) { return nic >= 0 && nic < fabric.nics(); };
  if (valid(ends.from) && valid(ends.to) && ends.from != ends.to) return {};
  return fail(ErrorCode::kInvalidArgument, "flow from NIC {} to NIC {} of {}", ends.from, ends.to,
              fabric.nics());
}

Result<Candidate> best_path(const FlowView& view) {
  WEFT_TRY(check_ends(*view.fabric, view.ends));
  Candidate best{}, candidate{};
  bool found = false;
  for (std::int32_t plane = 0; plane < view.fabric->planes; ++plane) {
    if (!best_of_plane(view, plane, candidate)) continue;
    if (!found || candidate.cost < best.cost) best = candidate;
    found = true;
  }
  if (!found) {
    return fail(ErrorCode::kUnavailable, "no working spine between leaves {} and {}",
                view.fabric->leaf_of(view.ends.from), view.fabric->leaf_of(view.ends.to));
  }
  return best;
}

// A proper colouring of a bipartite multigraph with `colours` colours, at least the largest
// degree. Edges are (left, right); each new edge takes a colour free at its left end, after
// swapping two colours along the path from its right end where that is taken there.
class Colouring {
 public:
  Colouring(std::int32_t vertices, std::int32_t colours)
      : colours_(colours),
        edge_of_{std::vector<std::int32_t>(at(vertices) * at(colours), -1),
                 std::vector<std::int32_t>(at(vertices) * at(colours), -1)} {}

  void add(std::int32_t left, std::int32_t right) {
    const std::int32_t a = free_colour(0, left), b = free_colour(1, right);
    const auto edge = static_cast<std::int32_t>(colour_.size());
    ends_.push_back({left, right});
    colour_.push_back(a);
    // From the right end along colours a, b, a, ...: it never comes to `left`, where a is free.
    if (a != b) swap_path(right, a, b);
    slot(0, left, a) = edge;
    slot(1, right, a) = edge;
  }
  std::int32_t colour(std::size_t edge) const { return colour_[edge]; }

 private:
  std::int32_t& slot(int side, std::int32_t vertex, std::int32_t colour) {
    return edge_of_[side][at(vertex) * at(colours_) + at(colour)];
  }
  std::int32_t free_colour(int side, std::int32_t vertex) {
    std::int32_t colour = 0;
    while (slot(side, vertex, colour) >= 0) ++colour;
    return colour;
  }
  void swap_path(std::int32_t right, std::int32_t a, std::int32_t b) {
    std::vector<std::int32_t> path;
    int side = 1;
    for (std::int32_t vertex = right, want = a;;) {
      const std::int32_t edge = slot(side, vertex, want);
      if (edge < 0) break;
      path.push_back(edge);
      vertex = side == 1 ? ends_[at(edge)][0] : ends_[at(edge)][1];
      side = 1 - side;
      want = want == a ? b : a;
    }
    for (const std::int32_t edge : path) {
      slot(0, ends_[at(edge)][0], colour_[at(edge)]) = -1;
      slot(1, ends_[at(edge)][1], colour_[at(edge)]) = -1;
    }
    for (const std::int32_t edge : path) {
      std::int32_t& colour = colour_[at(edge)];
      colour = colour == a ? b : a;
      slot(0, ends_[at(edge)][0], colour) = edge;
      slot(1, ends_[at(edge)][1], colour) = edge;
    }
  }

  std::int32_t colours_;
  std::vector<std::int32_t> edge_of_[2];  // [vertex][colour]
  std::vector<std::array<std::int32_t, 2>> ends_;
  std::vector<std::int32_t> colour_;
};

}  // namespace

TrafficLoads::TrafficLoads(const cluster::LeafSpine& fabric)
    : out(at(fabric.nics()) * at(fabric.planes)),
      in(out.size()),
      up(at(fabric.uplinks())),
      down(up.size()) {}

void TrafficLoads::add(const cluster::LeafSpine& fabric, FlowEnds ends, FlowPath path,
                       std::int32_t count) {
  out[at(ends.from * fabric.planes + path.plane)] += count;
  in[at(ends.to * fabric.planes + path.plane)] += count;
  if (path.spine < 0) return;
  up[at(fabric.uplink(path.plane, fabric.leaf_of(ends.from), path.spine))] += count;
  down[at(fabric.uplink(path.plane, fabric.leaf_of(ends.to), path.spine))] += count;
}

std::int32_t TrafficLoads::most_on_uplinks() const {
  return std::max(std::ranges::max(up), std::ranges::max(down));
}

Result<FlowPath> choose_path(const FlowView& view) {
  WEFT_ASSIGN(const Candidate best, best_path(view));
  return best.path;
}

Result<Decision<FlowPath>> decide(const FlowView& view) {
  WEFT_ASSIGN(const Candidate best, best_path(view));
  Decision<FlowPath> decision;
  decision.chosen = best.path;
  decision.predicted_cost = std::get<1>(best.cost);
  decision.reason = fmt::format("plane {} has {} flows on the fuller port", best.path.plane,
                                std::get<0>(best.cost));
  if (best.path.spine >= 0) {
    decision.reason +=
        fmt::format(", spine {} {} on the fuller uplink", best.path.spine, std::get<1>(best.cost));
  }
  for (std::int32_t plane = 0; plane < view.fabric->planes; ++plane) {
    if (plane == best.path.plane) continue;
    Candidate other{};
    const bool works = best_of_plane(view, plane, other);
    decision.rejected.push_back(
        {fmt::format("plane {}", plane),
         works ? fmt::format("{} flows on the fuller port, {} on the fuller uplink",
                             std::get<0>(other.cost), std::get<1>(other.cost))
               : "no working spine",
         works ? static_cast<double>(std::get<1>(other.cost)) : 0});
  }
  return decision;
}

TrafficPlanner::TrafficPlanner(cluster::LeafSpine fabric)
    : fabric_(std::move(fabric)), loads_(fabric_) {
  WEFT_CHECK(check(fabric_).has_value());
  fabric_.broken.resize(at(fabric_.uplinks()));
}

Result<std::int32_t> TrafficPlanner::place(FlowEnds ends) {
  WEFT_ASSIGN(const FlowPath path, choose_path({&fabric_, &loads_, ends}));
  loads_.add(fabric_, ends, path, 1);
  flows_.push_back({ends, path, true});
  return static_cast<std::int32_t>(flows_.size()) - 1;
}

void TrafficPlanner::remove(std::int32_t flow) {
  Flow& f = flows_[at(flow)];
  WEFT_CHECK(f.placed, "flow {} has no path", flow);
  loads_.add(fabric_, f.ends, f.path, -1);
  f.placed = false;
}

Result<std::vector<std::int32_t>> TrafficPlanner::break_uplink(std::int32_t uplink) {
  if (uplink < 0 || uplink >= fabric_.uplinks()) {
    return fail(ErrorCode::kInvalidArgument, "uplink {} of {}", uplink, fabric_.uplinks());
  }
  std::vector<std::int32_t> moved;
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    const Flow& f = flows_[i];
    if (!f.placed || f.path.spine < 0) continue;
    const auto crosses = [&](std::int32_t nic) {
      return fabric_.uplink(f.path.plane, fabric_.leaf_of(nic), f.path.spine) == uplink;
    };
    if (!crosses(f.ends.from) && !crosses(f.ends.to)) continue;
    remove(static_cast<std::int32_t>(i));
    moved.push_back(static_cast<std::int32_t>(i));
  }
  fabric_.broken[at(uplink)] = true;
  Status left = {};
  for (const std::int32_t flow : moved) {
    Flow& f = flows_[at(flow)];
    const auto path = choose_path({&fabric_, &loads_, f.ends});
    if (!path) {
      left = std::unexpected(path.error().in(fmt::format("flow {}", flow)));
      continue;
    }
    f.path = *path;
    f.placed = true;
    loads_.add(fabric_, f.ends, f.path, 1);
  }
  WEFT_TRY(left);
  return moved;
}

Result<std::vector<FlowPath>> optimal_paths(const cluster::LeafSpine& fabric,
                                            std::span<const FlowEnds> flows) {
  if (std::ranges::find(fabric.broken, true) != fabric.broken.end()) {
    return fail(ErrorCode::kUnsupported,
                "the off-line optimum is for equal links; some are broken: use the planner");
  }
  std::vector<FlowPath> paths(flows.size());
  TrafficLoads ports(fabric);
  std::vector<std::int32_t> degree(at(fabric.planes) * at(fabric.leaves) * 2);
  for (std::size_t i = 0; i < flows.size(); ++i) {
    WEFT_TRY(check_ends(fabric, flows[i]));
    const std::int32_t from = fabric.leaf_of(flows[i].from), to = fabric.leaf_of(flows[i].to);
    const auto degree_of = [&](std::int32_t plane, std::int32_t leaf, int side) -> auto& {
      return degree[at((plane * fabric.leaves + leaf) * 2 + side)];
    };
    const auto cost = [&](std::int32_t plane) {
      return std::pair(std::max(ports.out[at(flows[i].from * fabric.planes + plane)],
                                ports.in[at(flows[i].to * fabric.planes + plane)]),
                       std::max(degree_of(plane, from, 0), degree_of(plane, to, 1)));
    };
    for (std::int32_t plane = 1; plane < fabric.planes; ++plane) {
      if (cost(plane) < cost(paths[i].plane)) paths[i].plane = plane;
    }
    ports.add(fabric, flows[i], paths[i], 1);
    if (from == to) continue;
    ++degree_of(paths[i].plane, from, 0);
    ++degree_of(paths[i].plane, to, 1);
  }
  const std::int32_t colours = std::max(1, std::ranges::max(degree));
  for (std::int32_t plane = 0; plane < fabric.planes; ++plane) {
    Colouring colouring(fabric.leaves, colours);
    std::vector<std::size_t> edges;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const std::int32_t from = fabric.leaf_of(flows[i].from), to = fabric.leaf_of(flows[i].to);
      if (paths[i].plane != plane || from == to) continue;
      colouring.add(from, to);
      edges.push_back(i);
    }
    for (std::size_t e = 0; e < edges.size(); ++e) {
      paths[edges[e]].spine = colouring.colour(e) % fabric.spines;
    }
  }
  return paths;
}

std::int32_t least_uplink_load(const cluster::LeafSpine& fabric, std::span<const FlowEnds> flows) {
  std::vector<std::int32_t> out(at(fabric.leaves)), in(at(fabric.leaves));
  for (const FlowEnds& flow : flows) {
    const std::int32_t from = fabric.leaf_of(flow.from), to = fabric.leaf_of(flow.to);
    if (from == to) continue;
    ++out[at(from)];
    ++in[at(to)];
  }
  std::int32_t least = 0;
  for (std::int32_t leaf = 0; leaf < fabric.leaves; ++leaf) {
    std::int32_t working = 0;
    for (std::int32_t plane = 0; plane < fabric.planes; ++plane) {
      for (std::int32_t spine = 0; spine < fabric.spines; ++spine) {
        working += fabric.works(fabric.uplink(plane, leaf, spine)) ? 1 : 0;
      }
    }
    const std::int32_t most = std::max(out[at(leaf)], in[at(leaf)]);
    if (working > 0) least = std::max(least, (most + working - 1) / working);
  }
  return least;
}

}  // namespace weft::plan
