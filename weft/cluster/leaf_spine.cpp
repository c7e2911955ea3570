#include "weft/cluster/leaf_spine.h"

namespace weft::cluster {

Status check(const LeafSpine& fabric) {
  const struct {
    const char* name;
    std::int64_t value, most;
  } counts[] = {{"planes", fabric.planes, 16},
                {"leaves", fabric.leaves, 1 << 16},
                {"spines", fabric.spines, 1 << 12},
                {"nics_per_leaf", fabric.nics_per_leaf, 1 << 12}};
  for (const auto& count : counts) {
    if (count.value < 1 || count.value > count.most) {
      return fail(ErrorCode::kInvalidArgument, "fabric: {} {}: 1 to {}", count.name, count.value,
                  count.most);
    }
  }
  if (!(fabric.port_gbps > 0) || !(fabric.uplink_gbps > 0) || !(fabric.nic_gbps >= 0)) {
    return fail(ErrorCode::kInvalidArgument, "fabric: rates {}, {}, {} Gb/s of port, uplink, NIC",
                fabric.port_gbps, fabric.uplink_gbps, fabric.nic_gbps);
  }
  if (!fabric.broken.empty() &&
      fabric.broken.size() != static_cast<std::size_t>(fabric.uplinks())) {
    return fail(ErrorCode::kInvalidArgument, "fabric: health of {} uplinks, of {}",
                fabric.broken.size(), fabric.uplinks());
  }
  return {};
}

}  // namespace weft::cluster
