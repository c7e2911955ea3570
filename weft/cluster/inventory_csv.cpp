// Inventories that come as tables: Lingjun, openb, Philly, Tiresias.
#include <array>
#include <map>

#include "weft/cluster/text_rows.h"
#include "weft/cluster/topology_reader.h"

namespace weft::cluster {
namespace {

void add_gpus(Topology& topology, PartId node, std::int64_t count, std::string_view model,
              std::int64_t memory_bytes, int line) {
  for (std::int64_t g = 0; g < count; ++g) {
    topology.add({.kind = PartKind::kGpu,
                  .parent = node,
                  .name = fmt::format("gpu{}", g),
                  .model = std::string(model),
                  .memory_bytes = memory_bytes,
                  .line = line});
  }
}

}  // namespace

// topo.csv of alibaba/alibaba-lingjun-dataset-2023: ip,DSW,PSW,ASW = host, core,
// aggregation pod, top-of-rack switch. A rack switch's number is within its pod. Hosts
// have 8 GPUs (Alibaba HPN, SIGCOMM 2024), which the file does not say.
Result<Topology> read_lingjun(std::string_view text, std::string_view file) {
  Topology topology{.name = std::string(file), .format = "lingjun"};
  constexpr std::array<std::string_view, 4> kColumns = {"ip", "DSW", "PSW", "ASW"};
  struct Host {
    std::string_view name, core, pod, leaf;
    int line;
  };
  std::vector<Host> hosts;
  std::map<std::string_view, int> first_line;
  WEFT_TRY(for_each_row(text, file, kColumns, [&](auto cells, int line) -> Status {
    for (std::size_t i = 0; i < 4; ++i) {
      if (cells[i].empty()) return at_line(file, line, fmt::format("{} is empty", kColumns[i]));
      constexpr std::string_view kInitial = " GPS";
      if (i > 0 && (cells[i][0] != kInitial[i] || cells[i].size() < 2 ||
                    cells[i].find_first_not_of("0123456789", 1) != std::string_view::npos)) {
        return at_line(file, line,
                       fmt::format("{}: expected {} and a number, got \"{}\"", kColumns[i],
                                   kInitial[i], cells[i]));
      }
    }
    if (cells[0].size() != 64 ||
        cells[0].find_first_not_of("0123456789abcdef") != std::string_view::npos) {
      return at_line(file, line,
                     fmt::format("ip: expected 64 hexadecimal digits (a digest of the "
                                 "address), got \"{}\"",
                                 cells[0]));
    }
    const auto [known, fresh] = first_line.try_emplace(cells[0], line);
    if (!fresh) {
      return at_line(file, line,
                     fmt::format("host {} is there twice (first in line {}); a host "
                                 "has one parent",
                                 cells[0], known->second));
    }
    hosts.push_back({cells[0], cells[1], cells[2], cells[3], line});
    return {};
  }));
  std::map<std::vector<std::string_view>, PartId> made;
  const auto switch_of = [&](std::vector<std::string_view> path, PartKind kind, PartId parent,
                             int line) {
    const auto name = std::string(path.back());
    const auto [at, fresh] = made.try_emplace(std::move(path), kNoPart);
    if (fresh) {
      at->second = topology.add({.kind = kind, .parent = parent, .name = name, .line = line});
    }
    return at->second;
  };
  for (const Host& host : hosts) {
    const PartId core = switch_of({host.core}, PartKind::kSite, kNoPart, host.line);
    const PartId pod = switch_of({host.core, host.pod}, PartKind::kPod, core, host.line);
    const PartId leaf =
        switch_of({host.core, host.pod, host.leaf}, PartKind::kSwitch, pod, host.line);
    const PartId node = topology.add({.kind = PartKind::kNode,
                                      .parent = leaf,
                                      .name = std::string(host.name),
                                      .line = host.line});
    add_gpus(topology, node, 8, "", 0, host.line);
  }
  topology.notes.push_back("8 GPUs a host are assumed: the file lists hosts and switches only");
  return topology;
}

// openb_node_list_*.csv of alibaba/clusterdata v2023: sn,cpu_milli,memory_mib,gpu,model.
Result<Topology> read_openb_nodes(std::string_view text, std::string_view file) {
  Topology topology{.name = std::string(file), .format = "openb"};
  constexpr std::array<std::string_view, 5> kColumns = {"sn", "cpu_milli", "memory_mib", "gpu",
                                                        "model"};
  WEFT_TRY(for_each_row(text, file, kColumns, [&](auto cells, int line) -> Status {
    WEFT_ASSIGN(const auto cpu, whole_number(cells[1], 0, 1 << 24, file, line, "cpu_milli"));
    WEFT_ASSIGN(const auto mib, whole_number(cells[2], 0, 1 << 26, file, line, "memory_mib"));
    WEFT_ASSIGN(const auto gpus, whole_number(cells[3], 0, 64, file, line, "gpu"));
    if ((gpus > 0) == cells[4].empty()) {
      return at_line(
          file, line,
          fmt::format("{} GPUs of model \"{}\": a node has both or neither", gpus, cells[4]));
    }
    const PartId node = topology.add({.kind = PartKind::kNode,
                                      .name = std::string(cells[0]),
                                      .memory_bytes = mib << 20,
                                      .cpu_milli = static_cast<std::int32_t>(cpu),
                                      .line = line});
    add_gpus(topology, node, gpus, cells[4], 0, line);
    return {};
  }));
  return topology;
}

// cluster_machine_list of the Philly traces: "machineId,number of GPUs, single GPU mem";
// the corrected list of Qinghao-Hu/Philly-Trace-Scripts has no memory column.
Result<Topology> read_philly_machines(std::string_view text, std::string_view file) {
  Topology topology{.name = std::string(file), .format = "philly"};
  constexpr std::array<std::string_view, 3> kColumns = {"machineId", "number of GPUs",
                                                        "single GPU mem"};
  const bool has_memory = text.substr(0, text.find('\n')).find(kColumns[2]) != std::string::npos;
  const std::span<const std::string_view> columns(kColumns.data(), has_memory ? 3 : 2);
  WEFT_TRY(for_each_row(text, file, columns, [&](auto cells, int line) -> Status {
    WEFT_ASSIGN(const auto gpus, whole_number(cells[1], 0, 64, file, line, "number of GPUs"));
    std::int64_t memory = 0;
    if (has_memory) {
      std::string_view size = cells[2];
      if (!size.ends_with("GB")) {
        return at_line(file, line,
                       fmt::format("single GPU mem: expected e.g. \"24GB\", got \"{}\"", size));
      }
      size.remove_suffix(2);
      WEFT_ASSIGN(memory, whole_number(size, 1, 4096, file, line, "single GPU mem"));
      memory <<= 30;
    }
    const PartId node =
        topology.add({.kind = PartKind::kNode, .name = std::string(cells[0]), .line = line});
    add_gpus(topology, node, gpus, "", memory, line);
    return {};
  }));
  return topology;
}

// cluster_spec.csv of SymbioticLab/Tiresias: one row of counts.
Result<Topology> read_tiresias_cluster(std::string_view text, std::string_view file) {
  Topology topology{.name = std::string(file), .format = "tiresias-cluster"};
  constexpr std::array<std::string_view, 5> kColumns = {
      "num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node"};
  int rows = 0;
  WEFT_TRY(for_each_row(text, file, kColumns, [&](auto cells, int line) -> Status {
    if (++rows > 1) return at_line(file, line, "a second row; one row describes the cluster");
    std::array<std::int64_t, 5> n{};
    constexpr std::array<std::int64_t, 5> kMost = {4096, 4096, 64, 4096, 1 << 20};
    for (std::size_t i = 0; i < 5; ++i) {
      WEFT_ASSIGN(n[i], whole_number(cells[i], 1, kMost[i], file, line, kColumns[i]));
    }
    if (n[0] * n[1] * n[2] > (1 << 22)) return at_line(file, line, "over four million GPUs");
    for (std::int64_t s = 0; s < n[0]; ++s) {
      const PartId leaf = topology.add(
          {.kind = PartKind::kSwitch, .name = fmt::format("switch{}", s), .line = line});
      for (std::int64_t i = 0; i < n[1]; ++i) {
        const PartId node = topology.add({.kind = PartKind::kNode,
                                          .parent = leaf,
                                          .name = fmt::format("node{}", s * n[1] + i),
                                          .memory_bytes = n[4] << 30,
                                          .cpu_milli = static_cast<std::int32_t>(n[3] * 1000),
                                          .line = line});
        add_gpus(topology, node, n[2], "", 0, line);
      }
    }
    return {};
  }));
  return topology;
}

}  // namespace weft::cluster
