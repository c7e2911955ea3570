#include "weft/cluster/topology.h"

#include <array>
#include <cmath>
#include <unordered_map>

namespace weft::cluster {
namespace {

constexpr std::array<std::string_view, 8> kKindNames = {"site",   "pod",        "switch", "node",
                                                        "socket", "pci-switch", "gpu",    "nic"};
constexpr std::array<std::string_view, 3> kHealthNames = {"up", "drained", "down"};
constexpr std::array<std::string_view, 4> kLinkNames = {"network", "nvlink", "measured", "ring"};

template <std::size_t N>
std::optional<std::size_t> index_of(const std::array<std::string_view, N>& names,
                                    std::string_view name) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return i;
  }
  return std::nullopt;
}

bool finite_rate(double value) { return std::isfinite(value) && value >= 0; }

}  // namespace

std::string_view to_string(PartKind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }
std::string_view to_string(Health health) { return kHealthNames[static_cast<std::size_t>(health)]; }
std::string_view to_string(LinkKind kind) { return kLinkNames[static_cast<std::size_t>(kind)]; }

std::optional<PartKind> part_kind_of(std::string_view name) {
  const auto index = index_of(kKindNames, name);
  return index ? std::optional(static_cast<PartKind>(*index)) : std::nullopt;
}

PartId Topology::add(Part part) {
  parts.push_back(std::move(part));
  return static_cast<PartId>(parts.size()) - 1;
}

std::vector<PartId> Topology::of_kind(PartKind kind) const {
  std::vector<PartId> ids;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind == kind) ids.push_back(static_cast<PartId>(i));
  }
  return ids;
}

PartId Topology::above(PartId part, PartKind kind) const {
  while (part != kNoPart && parts[static_cast<std::size_t>(part)].kind != kind) {
    part = parts[static_cast<std::size_t>(part)].parent;
  }
  return part;
}

std::optional<PartId> Topology::find(PartKind kind, std::string_view name) const {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind == kind && parts[i].name == name) return static_cast<PartId>(i);
  }
  return std::nullopt;
}

std::vector<std::vector<PartId>> Topology::children() const {
  std::vector<std::vector<PartId>> below(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].parent != kNoPart) {
      below[static_cast<std::size_t>(parts[i].parent)].push_back(static_cast<PartId>(i));
    }
  }
  return below;
}

std::vector<std::int32_t> Topology::gpus_below() const {
  std::vector<std::int32_t> count(parts.size(), 0);
  for (std::size_t i = parts.size(); i-- > 0;) {
    if (parts[i].kind == PartKind::kGpu) ++count[i];
    if (parts[i].parent != kNoPart) count[static_cast<std::size_t>(parts[i].parent)] += count[i];
  }
  return count;
}

std::string Topology::path(PartId part) const {
  std::string text;
  for (; part != kNoPart; part = parts[static_cast<std::size_t>(part)].parent) {
    const Part& p = parts[static_cast<std::size_t>(part)];
    text = fmt::format("{} {}{}{}", to_string(p.kind), p.name, text.empty() ? "" : " / ", text);
  }
  return text;
}

Status check(const Topology& topology) {
  const auto bad = [&](int line, const std::string& sentence) -> Status {
    return fail(ErrorCode::kInvalidArgument, "{}:{}: {}", topology.name, line, sentence);
  };
  if (topology.parts.empty()) {
    return bad(1, "no node and no device in it; is it the file you meant?");
  }
  std::unordered_map<std::string, int> seen;  // scope, kind and name -> line
  const auto count = static_cast<PartId>(topology.parts.size());
  for (PartId id = 0; id < count; ++id) {
    const Part& part = topology.parts[static_cast<std::size_t>(id)];
    if (part.name.empty()) {
      return bad(part.line, fmt::format("a {} without a name; name it", to_string(part.kind)));
    }
    if (part.parent < kNoPart || part.parent >= id) {
      return bad(part.line, fmt::format("{} {} lies below a part that comes later, a cycle; "
                                        "list parents first",
                                        to_string(part.kind), part.name));
    }
    if (part.parent != kNoPart) {
      const Part& parent = topology.parts[static_cast<std::size_t>(part.parent)];
      const bool leaf = parent.kind >= PartKind::kGpu;
      const bool flat = parent.kind == PartKind::kNode && part.kind == PartKind::kNode;
      if (parent.kind > part.kind || leaf || flat) {
        return bad(part.line, fmt::format("{} {} cannot lie below {} {}", to_string(part.kind),
                                          part.name, to_string(parent.kind), parent.name));
      }
    }
    if (!finite_rate(part.up_bytes_per_s) || part.memory_bytes < 0 || part.cpu_milli < 0) {
      return bad(part.line, fmt::format("{} {} has a negative rate, memory or CPU count",
                                        to_string(part.kind), part.name));
    }
    // Devices and sockets are named within their node, the rest in the whole file,
    // switches within what is above them (Lingjun numbers leaves within a pod).
    PartId scope = kNoPart;
    if (part.kind > PartKind::kNode) scope = topology.above(part.parent, PartKind::kNode);
    if (part.kind == PartKind::kSwitch) scope = part.parent;
    const auto [where, fresh] = seen.try_emplace(
        fmt::format("{}\n{}\n{}", scope, to_string(part.kind), part.name), part.line);
    if (!fresh) {
      return bad(part.line, fmt::format("{} {} is there twice (first in line {}); each needs "
                                        "its own name and one parent",
                                        to_string(part.kind), part.name, where->second));
    }
  }
  for (const Link& link : topology.links) {
    if (link.a < 0 || link.b < 0 || link.a >= count || link.b >= count) {
      return bad(link.line, "a link to a part that does not exist");
    }
    if (!finite_rate(link.bytes_per_s) || !finite_rate(link.latency_s)) {
      return bad(link.line, fmt::format("the link from {} to {} has a rate or latency that is "
                                        "negative or no number",
                                        topology.parts[static_cast<std::size_t>(link.a)].name,
                                        topology.parts[static_cast<std::size_t>(link.b)].name));
    }
  }
  return {};
}

Json to_json(const Topology& topology) {
  Json parts = Json::array();
  for (const Part& part : topology.parts) {
    Json row = {{"kind", to_string(part.kind)}, {"name", part.name}, {"parent", part.parent}};
    if (!part.model.empty()) row["model"] = part.model;
    if (part.health != Health::kUp) row["health"] = to_string(part.health);
    if (part.up_bytes_per_s > 0) row["up_bytes_per_s"] = part.up_bytes_per_s;
    if (part.memory_bytes > 0) row["memory_bytes"] = part.memory_bytes;
    if (part.cpu_milli > 0) row["cpu_milli"] = part.cpu_milli;
    parts.push_back(std::move(row));
  }
  Json links = Json::array();
  for (const Link& link : topology.links) {
    Json row = {{"a", link.a}, {"b", link.b}, {"kind", to_string(link.kind)}};
    if (link.health != Health::kUp) row["health"] = to_string(link.health);
    if (link.bytes_per_s > 0) row["bytes_per_s"] = link.bytes_per_s;
    if (link.latency_s > 0) row["latency_s"] = link.latency_s;
    links.push_back(std::move(row));
  }
  return {{"weft", "topology"},      {"name", topology.name},     {"format", topology.format},
          {"epoch", topology.epoch}, {"parts", std::move(parts)}, {"links", std::move(links)},
          {"notes", topology.notes}};
}

Result<Topology> topology_from_json(const Json& json, std::string_view name) {
  Topology topology;
  const auto read = [&]() -> Status {
    WEFT_ASSIGN(topology.name, json_field_or<std::string>(json, "name", std::string(name)));
    WEFT_ASSIGN(topology.format, json_field_or<std::string>(json, "format", "weft-json"));
    WEFT_ASSIGN(const std::int64_t epoch, json_field_or<std::int64_t>(json, "epoch", 1));
    topology.epoch = static_cast<std::uint64_t>(epoch);
    const auto list = [&](const char* key) -> Result<const Json*> {
      WEFT_ASSIGN(const Json* rows, json_field<const Json*>(json, key));
      if (!rows->is_array()) return fail(ErrorCode::kInvalidArgument, "\"{}\" is no list", key);
      return rows;
    };
    const auto health = [](const Json& row) -> Result<Health> {
      WEFT_ASSIGN(const std::string text, json_field_or<std::string>(row, "health", "up"));
      const auto index = index_of(kHealthNames, text);
      if (!index)
        return fail(ErrorCode::kInvalidArgument, "health \"{}\": up, drained or down", text);
      return static_cast<Health>(*index);
    };
    WEFT_ASSIGN(const Json* parts, list("parts"));
    for (const Json& row : *parts) {
      Part part;
      WEFT_ASSIGN(const std::string kind, json_field<std::string>(row, "kind"));
      const auto known = part_kind_of(kind);
      if (!known)
        return fail(ErrorCode::kInvalidArgument, "no kind of part is called \"{}\"", kind);
      part.kind = *known;
      WEFT_ASSIGN(part.name, json_field<std::string>(row, "name"));
      WEFT_ASSIGN(part.parent, json_field<int>(row, "parent"));
      WEFT_ASSIGN(part.model, json_field_or<std::string>(row, "model", ""));
      WEFT_ASSIGN(part.health, health(row));
      WEFT_ASSIGN(part.up_bytes_per_s, json_field_or<double>(row, "up_bytes_per_s", 0));
      WEFT_ASSIGN(part.memory_bytes, json_field_or<std::int64_t>(row, "memory_bytes", 0));
      WEFT_ASSIGN(part.cpu_milli, json_field_or<int>(row, "cpu_milli", 0));
      topology.add(std::move(part));
    }
    WEFT_ASSIGN(const Json* links, list("links"));
    for (const Json& row : *links) {
      Link link;
      WEFT_ASSIGN(link.a, json_field<int>(row, "a"));
      WEFT_ASSIGN(link.b, json_field<int>(row, "b"));
      WEFT_ASSIGN(const std::string kind, json_field<std::string>(row, "kind"));
      const auto known = index_of(kLinkNames, kind);
      if (!known)
        return fail(ErrorCode::kInvalidArgument, "no kind of link is called \"{}\"", kind);
      link.kind = static_cast<LinkKind>(*known);
      WEFT_ASSIGN(link.health, health(row));
      WEFT_ASSIGN(link.bytes_per_s, json_field_or<double>(row, "bytes_per_s", 0));
      WEFT_ASSIGN(link.latency_s, json_field_or<double>(row, "latency_s", 0));
      topology.links.push_back(link);
    }
    if (const Json* notes = json_find(json, "notes"); notes != nullptr && notes->is_array()) {
      for (const Json& note : *notes) {
        if (note.is_string()) topology.notes.push_back(note.get<std::string>());
      }
    }
    return check(topology);
  };
  if (const Status status = read(); !status) {
    return std::unexpected(status.error().in(name));
  }
  return topology;
}

Topology uniform_cluster(int nodes, int gpus, int per_leaf, std::string_view model) {
  WEFT_CHECK(nodes > 0 && gpus >= 0 && per_leaf > 0);
  Topology topology{.name = fmt::format("{}x{}", nodes, gpus), .format = "made"};
  PartId leaf = kNoPart;
  for (int n = 0; n < nodes; ++n) {
    if (n % per_leaf == 0) {
      leaf = topology.add({.kind = PartKind::kSwitch, .name = fmt::format("leaf{}", n / per_leaf)});
    }
    const PartId node =
        topology.add({.kind = PartKind::kNode, .parent = leaf, .name = fmt::format("node{}", n)});
    for (int g = 0; g < gpus; ++g) {
      topology.add({.kind = PartKind::kGpu,
                    .parent = node,
                    .name = fmt::format("gpu{}", g),
                    .model = std::string(model)});
    }
  }
  return topology;
}

}  // namespace weft::cluster
