// Slurm's topology.conf (topology/tree): SwitchName=x Nodes=... or Switches=....
#include <algorithm>
#include <map>

#include "weft/cluster/host_list.h"
#include "weft/cluster/text_rows.h"
#include "weft/cluster/topology_reader.h"

namespace weft::cluster {
namespace {

struct Switch {
  std::string name = {};
  std::vector<std::string> switches = {}, nodes = {};
  int line = 0;
  int parent = -1;
  PartId part = kNoPart;
};

bool same_key(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

Result<Switch> read_line(std::string_view line, std::string_view file, int number) {
  Switch result{.line = number};
  while (!(line = without_blanks(line)).empty()) {
    const auto end = line.find_first_of(" \t");
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(end == std::string_view::npos ? line.size() : end);
    const auto equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    if (equals == std::string_view::npos || equals + 1 == word.size()) {
      return at_line(file, number, fmt::format("expected KEY=VALUE, got \"{}\"", word));
    }
    const std::string_view value = word.substr(equals + 1);
    const bool nodes = same_key(key, "Nodes");
    if (same_key(key, "SwitchName")) {
      if (value.find_first_of(",[]") != std::string_view::npos) {
        return at_line(file, number, fmt::format("SwitchName names one switch, got \"{}\"", value));
      }
      result.name = value;
    } else if (nodes || same_key(key, "Switches")) {
      auto names = expand_host_list(value);
      if (!names) return at_line(file, number, fmt::format("{}: {}", key, names.error().message));
      auto& into = nodes ? result.nodes : result.switches;
      if (!into.empty()) return at_line(file, number, fmt::format("{} is given twice", key));
      into = std::move(*names);
    } else if (!same_key(key, "LinkSpeed")) {
      return at_line(file, number,
                     fmt::format("unknown key {}: SwitchName, Switches, Nodes and "
                                 "LinkSpeed are known",
                                 key));
    }
  }
  if (result.name.empty()) return at_line(file, number, "the line lacks SwitchName=");
  if (result.nodes.empty() == result.switches.empty()) {
    return at_line(file, number,
                   fmt::format("switch {} needs either Nodes= or Switches=", result.name));
  }
  return result;
}

}  // namespace

Result<Topology> read_slurm_topology(std::string_view text, std::string_view file) {
  std::vector<Switch> switches;
  std::map<std::string, int, std::less<>> index;
  for (int number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    line = without_blanks(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    WEFT_ASSIGN(Switch one, read_line(line, file, number));
    if (!index.try_emplace(one.name, static_cast<int>(switches.size())).second) {
      return at_line(file, number, fmt::format("switch {} is described twice", one.name));
    }
    switches.push_back(std::move(one));
  }
  if (switches.empty()) return at_line(file, 1, "no SwitchName= line in it");
  for (std::size_t i = 0; i < switches.size(); ++i) {
    for (const std::string& child : switches[i].switches) {
      const auto at = index.find(child);
      if (at == index.end()) {
        return at_line(file, switches[i].line,
                       fmt::format("switch {} has no line of its own", child));
      }
      Switch& below = switches[static_cast<std::size_t>(at->second)];
      if (below.parent != -1) {
        return at_line(
            file, switches[i].line,
            fmt::format("switch {} has two parents, {} and {}", child,
                        switches[static_cast<std::size_t>(below.parent)].name, switches[i].name));
      }
      below.parent = static_cast<int>(i);
    }
  }
  Topology topology{.name = std::string(file), .format = "slurm"};
  std::vector<std::size_t> order;  // parents first
  for (std::size_t i = 0; i < switches.size(); ++i) {
    if (switches[i].parent == -1) order.push_back(i);
  }
  std::map<std::string, int, std::less<>> node_line;
  for (std::size_t next = 0; next < order.size(); ++next) {
    Switch& one = switches[order[next]];
    const PartId parent =
        one.parent == -1 ? kNoPart : switches[static_cast<std::size_t>(one.parent)].part;
    one.part = topology.add(
        {.kind = PartKind::kSwitch, .parent = parent, .name = one.name, .line = one.line});
    for (const std::string& child : one.switches) {
      order.push_back(static_cast<std::size_t>(index.find(child)->second));
    }
    for (const std::string& name : one.nodes) {
      const auto [at, fresh] = node_line.try_emplace(name, one.line);
      if (!fresh) {
        return at_line(
            file, one.line,
            fmt::format("node {} is already below the switch of line {}", name, at->second));
      }
      topology.add({.kind = PartKind::kNode, .parent = one.part, .name = name, .line = one.line});
    }
  }
  for (const Switch& one : switches) {
    if (one.part == kNoPart) {
      return at_line(file, one.line, fmt::format("switch {} is in a cycle of switches", one.name));
    }
  }
  return topology;
}

}  // namespace weft::cluster
