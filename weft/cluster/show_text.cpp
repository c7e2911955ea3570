#include <algorithm>
#include <map>

#include "weft/base/units.h"
#include "weft/cluster/show.h"

namespace weft::cluster {
namespace {

struct Printer {
  const Topology& topology;
  bool all;
  std::vector<std::vector<PartId>> children;
  std::string out;

  const Part& part(PartId id) const { return topology.parts[static_cast<std::size_t>(id)]; }
  const std::vector<PartId>& below(PartId id) const {
    return children[static_cast<std::size_t>(id)];
  }

  // What a part is, without its name: equal texts are equal sub-trees.
  std::string shape(PartId id) const {
    const Part& p = part(id);
    std::string text =
        fmt::format("{}|{}|{}|{}|{}|{}", to_string(p.kind), p.model, to_string(p.health),
                    p.up_bytes_per_s, p.memory_bytes, p.cpu_milli);
    std::map<std::string, int> inner;
    for (const PartId child : below(id)) ++inner[shape(child)];
    for (const auto& [one, count] : inner) text += fmt::format("({}x{})", count, one);
    return text;
  }

  std::string describe(PartId id) const {
    const Part& p = part(id);
    std::string text;
    if (!p.model.empty()) text += " " + p.model;
    if (p.cpu_milli > 0) text += fmt::format(", {} CPUs", p.cpu_milli / 1000.0);
    if (p.memory_bytes > 0) text += ", " + human_bytes(static_cast<double>(p.memory_bytes));
    if (p.up_bytes_per_s > 0) text += fmt::format(", {}/s up", human_bytes(p.up_bytes_per_s));
    if (p.health != Health::kUp) text += fmt::format(", {}", to_string(p.health));
    return text;
  }

  static std::string_view plural(PartKind kind) {
    switch (kind) {
      case PartKind::kSwitch:
        return "switches";
      case PartKind::kPciSwitch:
        return "pci-switches";
      case PartKind::kSite:
        return "sites";
      case PartKind::kPod:
        return "pods";
      case PartKind::kNode:
        return "nodes";
      case PartKind::kSocket:
        return "sockets";
      case PartKind::kGpu:
        return "gpus";
      case PartKind::kNic:
        return "nics";
    }
    return "";
  }

  void print(const std::vector<PartId>& siblings, int depth) {
    std::vector<std::pair<std::string, std::vector<PartId>>> groups;
    std::map<std::string, std::size_t> index;
    for (const PartId id : siblings) {
      const std::string key = all ? fmt::format("{}", id) : shape(id);
      const auto [at, fresh] = index.try_emplace(key, groups.size());
      if (fresh) groups.push_back({key, {}});
      groups[at->second].second.push_back(id);
    }
    for (const auto& [key, ids] : groups) {
      const Part& first = part(ids[0]);
      const auto short_name = [](const std::string& name) {
        return name.size() > 24 ? name.substr(0, 12) + ".." : name;
      };
      out += std::string(static_cast<std::size_t>(depth) * 2, ' ');
      if (ids.size() == 1) {
        out += fmt::format("{} {}{}\n", to_string(first.kind), short_name(first.name),
                           describe(ids[0]));
      } else {
        out += fmt::format("{} {} {} .. {}{}, each\n", ids.size(), plural(first.kind),
                           short_name(first.name), short_name(part(ids.back()).name),
                           describe(ids[0]));
      }
      print(below(ids[0]), depth + 1);
    }
  }
};

}  // namespace

std::string topology_text(const Topology& topology, bool all) {
  Printer printer{.topology = topology, .all = all, .children = topology.children(), .out = {}};
  std::map<PartKind, std::map<std::string, int>> counts;
  int down = 0;
  for (const Part& part : topology.parts) {
    const bool device = part.kind == PartKind::kGpu;
    ++counts[part.kind][device ? part.model : ""];
    if (part.health != Health::kUp) ++down;
  }
  printer.out = fmt::format("{} ({})\n", topology.name, topology.format);
  for (const auto& [kind, models] : counts) {
    int total = 0;
    std::string text;
    for (const auto& [model, count] : models) {
      total += count;
      if (!model.empty()) text += fmt::format("{}{} {}", text.empty() ? ": " : ", ", count, model);
    }
    printer.out += fmt::format("  {} {}{}\n", total, Printer::plural(kind), text);
  }
  if (!topology.links.empty()) {
    std::map<std::pair<LinkKind, double>, int> links;
    for (const Link& link : topology.links) ++links[{link.kind, link.bytes_per_s}];
    std::map<LinkKind, std::vector<std::string>> by_kind;
    std::map<LinkKind, int> total;
    std::map<LinkKind, std::pair<double, double>> span;
    for (const auto& [key, count] : links) {
      total[key.first] += count;
      auto& range = span.try_emplace(key.first, key.second, key.second).first->second;
      range = {std::min(range.first, key.second), std::max(range.second, key.second)};
    }
    for (const auto& [kind, count] : total) {
      const auto [low, high] = span[kind];
      printer.out += fmt::format("  {} {} links", count, to_string(kind));
      if (high > 0) {
        printer.out += low == high
                           ? fmt::format(" of {}/s", human_bytes(low))
                           : fmt::format(" of {}/s to {}/s", human_bytes(low), human_bytes(high));
      }
      printer.out += "\n";
    }
  }
  if (down > 0) printer.out += fmt::format("  {} parts down or drained\n", down);
  std::vector<PartId> roots;
  for (std::size_t i = 0; i < topology.parts.size(); ++i) {
    if (topology.parts[i].parent == kNoPart) roots.push_back(static_cast<PartId>(i));
  }
  printer.out += "\n";
  printer.print(roots, 0);
  for (const std::string& note : topology.notes) printer.out += fmt::format("note: {}\n", note);
  return std::move(printer.out);
}

}  // namespace weft::cluster
