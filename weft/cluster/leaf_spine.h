// LeafSpine: a two-tier fabric of one or more planes, as collectives' traffic sees it. Each
// NIC has a port in every plane, on the leaf of that plane that its group shares.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/base/result.h"

namespace weft::cluster {

struct LeafSpine {
  std::int32_t planes = 2, leaves = 16, spines = 8,
               nics_per_leaf = 8;  // leaves, spines: of a plane
  double port_gbps = 200;          // of a NIC in one plane
  double uplink_gbps = 200;        // of a leaf to one spine, and back
  double nic_gbps = 0;             // what a NIC's machine can take in or give; 0: no such limit
  std::vector<bool> broken = {};   // by uplink(); empty: none

  std::int32_t nics() const { return leaves * nics_per_leaf; }
  std::int32_t leaf_of(std::int32_t nic) const { return nic / nics_per_leaf; }
  std::int32_t uplinks() const { return planes * leaves * spines; }
  std::int32_t uplink(std::int32_t plane, std::int32_t leaf, std::int32_t spine) const {
    return (plane * leaves + leaf) * spines + spine;
  }
  bool works(std::int32_t uplink) const {
    return broken.empty() || !broken[static_cast<std::size_t>(uplink)];
  }
  // Whether leaf -> spine -> leaf works in this plane.
  bool works(std::int32_t plane, std::int32_t from, std::int32_t spine, std::int32_t to) const {
    return works(uplink(plane, from, spine)) && works(uplink(plane, to, spine));
  }
};
// kInvalidArgument names the field that is out of its range.
Status check(const LeafSpine& fabric);

}  // namespace weft::cluster
