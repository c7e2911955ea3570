// Weft's own description of a cluster: docs/formats/topology.md.
#include <toml++/toml.h>

#include <array>
#include <map>

#include "weft/cluster/host_list.h"
#include "weft/cluster/text_rows.h"
#include "weft/cluster/topology_reader.h"

namespace weft::cluster {
namespace {

int line_of(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

struct Reader {
  std::string_view file;
  Topology topology;
  std::map<std::string, PartId, std::less<>> by_name = {};

  Status known_keys(const toml::table& row, std::span<const std::string_view> keys) const {
    for (const auto& [key, value] : row) {
      if (std::find(keys.begin(), keys.end(), key.str()) == keys.end()) {
        return at_line(
            file, line_of(value),
            fmt::format("unknown key {}; known here: {}", key.str(), fmt::join(keys, ", ")));
      }
    }
    return {};
  }
  Result<std::string> text(const toml::table& row, std::string_view key, bool needed) const {
    const toml::node* node = row.get(key);
    if (node == nullptr) {
      if (!needed) return std::string();
      return at_line(file, line_of(row), fmt::format("lacks {} = \"...\"", key));
    }
    const auto value = node->value<std::string>();
    if (!node->is_string() || value->empty()) {
      return at_line(file, line_of(*node), fmt::format("{}: expected a text", key));
    }
    return *value;
  }
  Result<double> number(const toml::table& row, std::string_view key, double high) const {
    const toml::node* node = row.get(key);
    if (node == nullptr) return 0.0;
    const auto value = node->value<double>();
    if (!node->is_number() || !(*value >= 0 && *value <= high)) {
      return at_line(file, line_of(*node),
                     fmt::format("{}: expected a number from 0 to {}", key, high));
    }
    return *value;
  }
  Result<std::vector<const toml::table*>> rows(const toml::table& root,
                                               std::string_view key) const {
    std::vector<const toml::table*> list;
    const toml::node* node = root.get(key);
    if (node == nullptr) return list;
    const toml::array* array = node->as_array();
    if (array == nullptr) {
      return at_line(file, line_of(*node), fmt::format("{} must be written as [[{}]]", key, key));
    }
    for (const toml::node& row : *array) {
      if (row.as_table() == nullptr)
        return at_line(file, line_of(row), fmt::format("no table in {}", key));
      list.push_back(row.as_table());
    }
    return list;
  }

  Status read_parts(const toml::table& row, PartKind kind) {
    static constexpr std::array<std::string_view, 10> kNodeKeys = {
        "name",       "parent", "health", "up_gbit",   "cpus",
        "memory_gib", "model",  "gpus",   "gpu_model", "gpu_memory_gib"};
    WEFT_TRY(known_keys(row, std::span(kNodeKeys).first(kind == PartKind::kNode ? 10 : 4)));
    WEFT_ASSIGN(const std::string name, text(row, "name", true));
    WEFT_ASSIGN(const std::string parent, text(row, "parent", false));
    WEFT_ASSIGN(const std::string health, text(row, "health", false));
    WEFT_ASSIGN(const std::string model, text(row, "model", false));
    WEFT_ASSIGN(const std::string gpu_model, text(row, "gpu_model", false));
    WEFT_ASSIGN(const double gbit, number(row, "up_gbit", 1e6));
    WEFT_ASSIGN(const double cpus, number(row, "cpus", 1e6));
    WEFT_ASSIGN(const double memory, number(row, "memory_gib", 1e6));
    WEFT_ASSIGN(const double gpus, number(row, "gpus", 64));
    WEFT_ASSIGN(const double gpu_memory, number(row, "gpu_memory_gib", 1e5));
    const int line = line_of(row);
    Part part{.kind = kind,
              .model = model,
              .up_bytes_per_s = gbit * 1e9 / 8,
              .memory_bytes = static_cast<std::int64_t>(memory * (1 << 30)),
              .cpu_milli = static_cast<std::int32_t>(cpus * 1000),
              .line = line};
    if (health == "down")
      part.health = Health::kDown;
    else if (health == "drained")
      part.health = Health::kDrained;
    else if (!health.empty() && health != "up") {
      return at_line(file, line_of(*row.get("health")), "health: expected up, drained or down");
    }
    if (!parent.empty()) {
      const auto at = by_name.find(parent);
      if (at == by_name.end()) {
        return at_line(file, line_of(*row.get("parent")),
                       fmt::format("parent {} is not described above this line", parent));
      }
      part.parent = at->second;
    }
    auto names = expand_host_list(name);
    if (!names) return at_line(file, line_of(*row.get("name")), names.error().message);
    for (std::string& one : *names) {
      part.name = one;
      const PartId id = topology.add(part);
      if (!by_name.try_emplace(one, id).second) {
        return at_line(file, line, fmt::format("{} is there twice", one));
      }
      for (int g = 0; g < static_cast<int>(gpus); ++g) {
        topology.add({.kind = PartKind::kGpu,
                      .parent = id,
                      .name = fmt::format("gpu{}", g),
                      .model = gpu_model,
                      .memory_bytes = static_cast<std::int64_t>(gpu_memory * (1 << 30)),
                      .line = line});
      }
    }
    return {};
  }

  Status read_link(const toml::table& row) {
    static constexpr std::array<std::string_view, 4> kKeys = {"a", "b", "gbit", "latency_us"};
    WEFT_TRY(known_keys(row, kKeys));
    Link link{.line = line_of(row)};
    for (auto [key, end] : {std::pair{"a", &link.a}, std::pair{"b", &link.b}}) {
      WEFT_ASSIGN(const std::string name, text(row, key, true));
      const auto at = by_name.find(name);
      if (at == by_name.end()) {
        return at_line(file, line_of(*row.get(key)),
                       fmt::format("{}: there is no part {}", key, name));
      }
      *end = at->second;
    }
    WEFT_ASSIGN(const double gbit, number(row, "gbit", 1e6));
    WEFT_ASSIGN(const double latency, number(row, "latency_us", 1e9));
    link.bytes_per_s = gbit * 1e9 / 8;
    link.latency_s = latency * 1e-6;
    topology.links.push_back(link);
    return {};
  }
};

}  // namespace

Result<Topology> read_weft_toml(std::string_view text, std::string_view file) {
  toml::table root;
  try {
    root = toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    return at_line(file, static_cast<int>(error.source().begin.line), error.description());
  }
  Reader reader{.file = file, .topology = {.name = std::string(file), .format = "weft"}};
  static constexpr std::array<std::string_view, 6> kKeys = {"name",   "site", "pod",
                                                            "switch", "node", "link"};
  WEFT_TRY(reader.known_keys(root, kKeys));
  WEFT_ASSIGN(const std::string name, reader.text(root, "name", false));
  if (!name.empty()) reader.topology.name = fmt::format("{}", file);
  for (const auto& [key, kind] :
       {std::pair{"site", PartKind::kSite}, std::pair{"pod", PartKind::kPod},
        std::pair{"switch", PartKind::kSwitch}, std::pair{"node", PartKind::kNode}}) {
    WEFT_ASSIGN(const auto rows, reader.rows(root, key));
    for (const toml::table* row : rows) WEFT_TRY(reader.read_parts(*row, kind));
  }
  WEFT_ASSIGN(const auto links, reader.rows(root, "link"));
  for (const toml::table* row : links) WEFT_TRY(reader.read_link(*row));
  return std::move(reader.topology);
}

}  // namespace weft::cluster
