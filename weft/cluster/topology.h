// A cluster as a tree of parts, from the site down to the device, with links beside
// the tree. What placement, scheduling, simulation and diagnosis look at.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"

namespace weft::cluster {

// From the outside in. A child is never of an earlier kind than its parent; switches
// may nest (core above spine above leaf).
enum class PartKind : std::uint8_t {
  kSite,    // a place; everything below shares its wide-area link
  kPod,     // a minipod: nodes below it reach each other without the top switches
  kSwitch,  // a network switch: a failure domain
  kNode,    // a machine
  kSocket,  // a CPU package or NUMA node
  kPciSwitch,
  kGpu,
  kNic,
};
std::string_view to_string(PartKind kind);
std::optional<PartKind> part_kind_of(std::string_view name);

enum class Health : std::uint8_t { kUp, kDrained, kDown };
std::string_view to_string(Health health);

using PartId = std::int32_t;  // index into Topology::parts
inline constexpr PartId kNoPart = -1;

struct Part {
  PartKind kind = PartKind::kNode;
  Health health = Health::kUp;
  PartId parent = kNoPart;    // always an earlier index
  std::string name = {};      // unique among parts of its kind (devices: within their node)
  std::string model = {};     // "V100", a CPU's name; empty: unknown
  double up_bytes_per_s = 0;  // to the parent, one direction; 0: unknown
  std::int64_t memory_bytes = 0;
  std::int32_t cpu_milli = 0;  // thousandths of a CPU, of a node or socket
  std::int32_t line = 0;       // of the source, from 1; 0: made
};

enum class LinkKind : std::uint8_t { kNetwork, kNvlink, kMeasured, kRing };
std::string_view to_string(LinkKind kind);

// An edge beside the tree, one direction of which carries `bytes_per_s`.
struct Link {
  PartId a = kNoPart, b = kNoPart;
  LinkKind kind = LinkKind::kNetwork;
  Health health = Health::kUp;
  double bytes_per_s = 0;  // 0: unknown
  double latency_s = 0;    // 0: unknown
  std::int32_t line = 0;
};

struct Topology {
  std::string name = {};  // of the file it came from
  std::string format = {};
  std::uint64_t epoch = 1;       // grows with every edit; plans for an older one are refused
  std::vector<Part> parts = {};  // parents before children
  std::vector<Link> links = {};
  std::vector<std::string> notes = {};  // what the source says that is odd, a sentence each

  PartId add(Part part);
  std::vector<PartId> of_kind(PartKind kind) const;
  // The nearest part of `kind` at or above `part`; kNoPart when there is none.
  PartId above(PartId part, PartKind kind) const;
  std::optional<PartId> find(PartKind kind, std::string_view name) const;
  std::vector<std::vector<PartId>> children() const;
  // GPUs below each part, itself included.
  std::vector<std::int32_t> gpus_below() const;
  // "pod P10 / switch S14 / node a"
  std::string path(PartId part) const;
};

// What every reader ends with: parents before children, kinds in order, no name twice
// among siblings' kind, links between existing parts, rates and sizes not negative.
// kInvalidArgument "FILE:LINE: ...; remedy".
Status check(const Topology& topology);

// Weft's own form; from_json refuses what `check` refuses.
Json to_json(const Topology& topology);
Result<Topology> topology_from_json(const Json& json, std::string_view name);

// `nodes` equal nodes of `gpus` each below ceil(nodes / per_leaf) leaf switches.
Topology uniform_cluster(int nodes, int gpus, int per_leaf, std::string_view model);

}  // namespace weft::cluster
