// Reads the topology and inventory files that are published. docs/formats/topology.md
// lists the formats with what each carries and what it lacks.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "weft/cluster/topology.h"

namespace weft::cluster {

struct TopologyFormat {
  std::string_view name;  // as --format takes it
  std::string_view description;
  // True when `text`, the beginning of a file, is of this format.
  bool (*matches)(std::string_view text);
  // kCorrupt or kInvalidArgument "FILE:LINE: ...".
  Result<Topology> (*read)(std::string_view text, std::string_view file);
};
std::span<const TopologyFormat> topology_formats();

// Reads and checks; `format` empty: told from the file's beginning. At most 64 MB.
Result<Topology> read_topology(const std::filesystem::path& path, std::string_view format = {});
Result<Topology> parse_topology(std::string_view text, std::string_view file,
                                std::string_view format = {});

// One reader for each format.
Result<Topology> read_hwloc_xml(std::string_view text, std::string_view file);
Result<Topology> read_nccl_topology(std::string_view text, std::string_view file);
Result<Topology> read_nccl_graph(std::string_view text, std::string_view file);
Result<Topology> read_lingjun(std::string_view text, std::string_view file);
Result<Topology> read_openb_nodes(std::string_view text, std::string_view file);
Result<Topology> read_philly_machines(std::string_view text, std::string_view file);
Result<Topology> read_tiresias_cluster(std::string_view text, std::string_view file);
Result<Topology> read_slurm_topology(std::string_view text, std::string_view file);
Result<Topology> read_mooncake_links(std::string_view text, std::string_view file);
Result<Topology> read_weft_toml(std::string_view text, std::string_view file);
Result<Topology> read_weft_json(std::string_view text, std::string_view file);

}  // namespace weft::cluster
