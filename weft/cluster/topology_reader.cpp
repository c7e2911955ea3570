#include "weft/cluster/topology_reader.h"

#include <algorithm>
#include <array>
#include <set>

#include "weft/base/file.h"
#include "weft/base/nearest.h"
#include "weft/cluster/text_rows.h"

namespace weft::cluster {
namespace {

bool has(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}
std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }
char first_char(std::string_view text) {
  const auto at = text.find_first_not_of(" \t\r\n");
  return at == std::string_view::npos ? '\0' : text[at];
}
bool xml_with(std::string_view text, std::string_view root) {
  return first_char(text) == '<' && has(text, root);
}

// The line of the first key that its object has already; 1 when there is none. For
// documents that the parser refused for that, without a place.
int line_of_repeated_key(std::string_view text) {
  std::vector<std::set<std::string_view>> open(1);
  int line = 1;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') ++line;
    if (text[i] == '{' || text[i] == '[') open.emplace_back();
    if ((text[i] == '}' || text[i] == ']') && open.size() > 1) open.pop_back();
    if (text[i] != '"') continue;
    const std::size_t begin = i + 1;
    for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\';
    const auto next = text.find_first_not_of(" \t\r\n", i + 1);
    if (next == std::string_view::npos || text[next] != ':' || i > text.size()) continue;
    if (!open.back().insert(text.substr(begin, i - begin)).second) return line;
  }
  return 1;
}

// As parse_json, and every error has a line.
Result<Json> parse_with_lines(std::string_view text, std::string_view file) {
  auto json = parse_json(text, file);
  if (json || !has(json.error().message, "occurs twice")) return json;
  const std::string_view sentence = json.error().message;
  return at_line(file, line_of_repeated_key(text),
                 sentence.substr(std::min(sentence.size(), file.size() + 2)));
}

constexpr std::array<TopologyFormat, 11> kFormats = {{
    {"nccl", "NCCL topology XML (NCCL_TOPO_FILE)",
     [](std::string_view t) { return xml_with(t, "<system"); }, &read_nccl_topology},
    {"nccl-graph", "NCCL search graph XML (NCCL_GRAPH_DUMP_FILE)",
     [](std::string_view t) { return xml_with(t, "<graphs"); }, &read_nccl_graph},
    {"hwloc", "hwloc XML (lstopo FILE.xml)",
     [](std::string_view t) { return xml_with(t, "<topology") || xml_with(t, "<root"); },
     &read_hwloc_xml},
    {"lingjun", "Alibaba Lingjun topo.csv: ip,DSW,PSW,ASW",
     [](std::string_view t) { return has(first_line(t), "DSW"); }, &read_lingjun},
    {"openb", "Alibaba v2023 node list: sn,cpu_milli,memory_mib,gpu,model",
     [](std::string_view t) {
       return has(first_line(t), "memory_mib") && has(first_line(t), "model");
     },
     &read_openb_nodes},
    {"philly", "Philly machine list: machineId, number of GPUs, single GPU mem",
     [](std::string_view t) {
       return has(first_line(t), "machineId") && has(first_line(t), "number of GPUs");
     },
     &read_philly_machines},
    {"tiresias-cluster", "Tiresias cluster_spec: num_switch,num_node_p_switch,...",
     [](std::string_view t) { return has(first_line(t), "num_node_p_switch"); },
     &read_tiresias_cluster},
    {"slurm", "Slurm topology.conf (topology/tree)",
     [](std::string_view t) { return has(t, "SwitchName="); }, &read_slurm_topology},
    {"mooncake-links", "Mooncake cluster-topology.json: measured host-to-host links",
     [](std::string_view t) { return first_char(t) == '[' && has(t, "\"src_host\""); },
     &read_mooncake_links},
    {"weft-json", "`weft fabric import --out FILE.json`",
     [](std::string_view t) { return first_char(t) == '{' && has(t, "\"topology\""); },
     &read_weft_json},
    {"weft", "Weft's own TOML: [[switch]], [[node]], [[link]]",
     [](std::string_view t) { return has(t, "[[node]]"); }, &read_weft_toml},
}};

}  // namespace

std::span<const TopologyFormat> topology_formats() { return kFormats; }

Result<Topology> parse_topology(std::string_view text, std::string_view file,
                                std::string_view format) {
  const TopologyFormat* reader = nullptr;
  std::vector<std::string> names;
  for (const TopologyFormat& known : kFormats) {
    names.emplace_back(known.name);
    const bool fits =
        format.empty() ? known.matches(text.substr(0, 64 << 10)) : known.name == format;
    if (fits && reader == nullptr) reader = &known;
  }
  if (reader == nullptr && !format.empty()) {
    const std::string near = nearest_name(format, names);
    return fail(ErrorCode::kInvalidArgument, "no topology format is called {}{}", format,
                near.empty() ? "" : fmt::format("; did you mean {}?", near));
  }
  if (reader == nullptr) {
    return at_line(file, 1,
                   fmt::format("the beginning fits none of the known formats ({}); name "
                               "one with --format",
                               fmt::join(names, ", ")));
  }
  WEFT_ASSIGN(Topology topology, reader->read(text, file));
  WEFT_TRY(check(topology));
  return topology;
}

Result<Topology> read_topology(const std::filesystem::path& path, std::string_view format) {
  WEFT_ASSIGN(const std::string text, read_file(path, std::size_t{64} << 20));
  return parse_topology(text, path.string(), format);
}

Result<Topology> read_weft_json(std::string_view text, std::string_view file) {
  WEFT_ASSIGN(const Json json, parse_with_lines(text, file));
  return topology_from_json(json, fmt::format("{}:1", file));
}

// The list of measured paths between two hosts: one link for each pair of cards that was
// measured, MB/s and microseconds.
Result<Topology> read_mooncake_links(std::string_view text, std::string_view file) {
  WEFT_ASSIGN(const Json json, parse_with_lines(text, file));
  Topology topology{.name = std::string(file), .format = "mooncake-links"};
  std::size_t at = 0;  // walks over the text beside the values, for their lines
  int line = 1;
  const auto walk_to = [&](std::string_view key) {
    const auto next = text.find(key, at);
    if (next == std::string_view::npos) return;
    line += static_cast<int>(std::count(text.begin() + static_cast<std::ptrdiff_t>(at),
                                        text.begin() + static_cast<std::ptrdiff_t>(next), '\n'));
    at = next + 1;
  };
  const auto part_of = [&](PartKind kind, PartId parent, const std::string& name) {
    for (std::size_t i = 0; i < topology.parts.size(); ++i) {
      const Part& part = topology.parts[i];
      if (part.kind == kind && part.parent == parent && part.name == name) {
        return static_cast<PartId>(i);
      }
    }
    return topology.add({.kind = kind, .parent = parent, .name = name, .line = line});
  };
  const auto read_pair = [&](const Json& pair) -> Status {
    walk_to("\"src_host\"");
    WEFT_ASSIGN(const auto from, json_field<std::string>(pair, "src_host"));
    WEFT_ASSIGN(const auto to, json_field<std::string>(pair, "dst_host"));
    WEFT_ASSIGN(const Json* endpoints, json_field<const Json*>(pair, "endpoints"));
    if (!endpoints->is_array() || endpoints->empty()) {
      return fail(ErrorCode::kInvalidArgument, "\"endpoints\" is no list with elements");
    }
    const PartId source = part_of(PartKind::kNode, kNoPart, from);
    const PartId target = part_of(PartKind::kNode, kNoPart, to);
    for (const Json& endpoint : *endpoints) {
      walk_to("\"src_dev\"");
      WEFT_ASSIGN(const auto a, json_field<std::string>(endpoint, "src_dev"));
      WEFT_ASSIGN(const auto b, json_field<std::string>(endpoint, "dst_dev"));
      WEFT_ASSIGN(const double rate, json_field<double>(endpoint, "bandwidth"));
      WEFT_ASSIGN(const double latency, json_field<double>(endpoint, "latency"));
      if (!(rate > 0) || !(latency > 0)) {
        return fail(ErrorCode::kInvalidArgument, "bandwidth {} and latency {} must be above 0",
                    rate, latency);
      }
      topology.links.push_back({.a = part_of(PartKind::kNic, source, a),
                                .b = part_of(PartKind::kNic, target, b),
                                .kind = LinkKind::kMeasured,
                                .bytes_per_s = rate * 1e6,
                                .latency_s = latency * 1e-6,
                                .line = line});
    }
    return {};
  };
  if (!json.is_array()) return at_line(file, 1, "a list of host pairs was expected");
  for (const Json& pair : json) {
    if (const Status status = read_pair(pair); !status) {
      return at_line(file, line, status.error().message);
    }
  }
  return topology;
}

}  // namespace weft::cluster
