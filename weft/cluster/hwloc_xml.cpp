// hwloc's XML, versions 1 to 3, read here rather than by libhwloc: errors must name the
// line, and a foreign machine's file is outside input. tests/cluster checks the counts
// against libhwloc's.
#include <array>
#include <map>
#include <set>
#include <sstream>

#include "weft/cluster/text_rows.h"
#include "weft/cluster/topology_reader.h"
#include "weft/cluster/xml.h"

namespace weft::cluster {
namespace {

constexpr std::array<std::string_view, 25> kObjectTypes = {
    "Machine",  "Package",  "Socket",  "Die",     "Group",   "NUMANode", "Core",
    "PU",       "L1Cache",  "L2Cache", "L3Cache", "L4Cache", "L5Cache",  "L1iCache",
    "L2iCache", "L3iCache", "Cache",   "Bridge",  "PCIDev",  "OSDev",    "Misc",
    "MemCache", "System",   "Node",    "Tile"};

struct Reader {
  std::string_view file;
  Topology topology;
  std::map<std::string, PartId, std::less<>> by_name =
      {};  // "OSDev:802", "PCIDev:449", "Package:3"
  std::set<std::string, std::less<>> nvlink_ends = {};
  int pus = 0, packages = 0;
  PartId node = kNoPart;

  static std::string_view get(const XmlElement& element, std::string_view name) {
    const std::string* value = element.attribute(name);
    return value == nullptr ? std::string_view{} : std::string_view(*value);
  }
  static std::string_view info(const XmlElement& element, std::string_view name) {
    for (const XmlElement& child : element.children) {
      if (child.name == "info" && get(child, "name") == name) return get(child, "value");
    }
    return {};
  }

  Status read_object(const XmlElement& element, PartId parent) {
    const std::string_view type = get(element, "type");
    if (std::find(kObjectTypes.begin(), kObjectTypes.end(), type) == kObjectTypes.end()) {
      return at_line(file, element.line, fmt::format("no hwloc object has type \"{}\"", type));
    }
    PartId here = parent;
    if (type == "PU") ++pus;
    if (type == "Machine") {
      if (node != kNoPart) return at_line(file, element.line, "a second Machine");
      std::string_view name = info(element, "HostName");
      node = here = topology.add({.kind = PartKind::kNode,
                                  .name = name.empty() ? "node0" : std::string(name),
                                  .model = std::string(info(element, "DMIProductName")),
                                  .line = element.line});
    } else if (node == kNoPart) {
      return at_line(file, element.line, fmt::format("a {} outside of a Machine", type));
    } else if (type == "Package" || type == "Socket") {
      if (topology.above(parent, PartKind::kSocket) != kNoPart) {
        return at_line(file, element.line, "a Package inside a Package");
      }
      here = topology.add({.kind = PartKind::kSocket,
                           .parent = node,
                           .name = fmt::format("package{}", packages++),
                           .model = std::string(info(element, "CPUModel")),
                           .line = element.line});
      by_name.try_emplace(fmt::format("Package:{}", get(element, "gp_index")), here);
    } else if (type == "NUMANode") {
      if (const std::string_view memory = get(element, "local_memory"); !memory.empty()) {
        WEFT_ASSIGN(const auto bytes, whole_number(memory, 0, std::int64_t{1} << 50, file,
                                                   element.line, "local_memory"));
        topology.parts[static_cast<std::size_t>(node)].memory_bytes += bytes;
        if (const PartId socket = topology.above(parent, PartKind::kSocket); socket != kNoPart) {
          topology.parts[static_cast<std::size_t>(socket)].memory_bytes += bytes;
        }
      }
    } else if (type == "PCIDev") {
      WEFT_ASSIGN(here, read_pci(element, parent));
    }
    for (const XmlElement& child : element.children) {
      if (child.name == "object") {
        const int before = pus;
        WEFT_TRY(read_object(child, here));
        if (here != parent && type != "PCIDev" && type != "Machine") {
          topology.parts[static_cast<std::size_t>(here)].cpu_milli += (pus - before) * 1000;
        }
      } else if (child.name != "info" && child.name != "page_type" && child.name != "userdata" &&
                 child.name != "distances" && child.name != "indexes" &&
                 child.name != "distances2" && child.name != "latency") {
        return at_line(file, child.line, fmt::format("<{}> cannot be inside <object>", child.name));
      }
    }
    return {};
  }

  // GPUs and network cards; other devices are passed over unless a distance names them.
  Result<PartId> read_pci(const XmlElement& element, PartId parent) {
    const std::string_view bus = get(element, "pci_busid"), type = get(element, "pci_type");
    if (bus.empty() || type.size() < 4) {
      return at_line(file, element.line, "a PCIDev without pci_busid or pci_type");
    }
    const bool display = type.starts_with("03");
    const bool compute = type.find("[10de:") != std::string_view::npos ||
                         type.find("[1002:") != std::string_view::npos || type.starts_with("0302");
    const bool network = type.starts_with("02") || type.starts_with("0c06");
    // NVSwitches come as bridges or other devices; what an NVLink leads to is one.
    const bool nvswitch = nvlink_ends.contains(fmt::format("PCIDev:{}", get(element, "gp_index")));
    if (!(display && compute) && !network && !nvswitch) return parent;
    double rate = 0;
    if (const std::string_view speed = get(element, "pci_link_speed"); !speed.empty()) {
      WEFT_ASSIGN(rate, real_number(speed, 0, 1e5, file, element.line, "pci_link_speed"));
    }
    std::string_view model = info(element, "PCIDevice");
    for (const XmlElement& child : element.children) {
      if (const auto name = info(child, "GPUModel"); !name.empty()) model = name;
    }
    const PartKind kind = display   ? PartKind::kGpu
                          : network ? PartKind::kNic
                                    : PartKind::kPciSwitch;
    const PartId id = topology.add({.kind = kind,
                                    .parent = parent,
                                    .name = std::string(bus),
                                    .model = std::string(model),
                                    .up_bytes_per_s = rate * 1e9,
                                    .line = element.line});
    by_name.try_emplace(fmt::format("PCIDev:{}", get(element, "gp_index")), id);
    for (const XmlElement& child : element.children) {
      if (child.name == "object" && get(child, "type") == "OSDev") {
        by_name.try_emplace(fmt::format("OSDev:{}", get(child, "gp_index")), id);
      }
    }
    return id;
  }

  // NVLinkBandwidth, in MB/s between the named objects: the matrix's cells above the
  // diagonal that are not 0.
  Status read_distances(const XmlElement& element) {
    std::vector<std::string> names;
    std::vector<std::int64_t> values;
    for (const XmlElement& child : element.children) {
      std::istringstream words(child.text);
      for (std::string word; words >> word;) {
        if (child.name == "indexes") {
          names.push_back(word);
        } else if (child.name == "u64values") {
          WEFT_ASSIGN(const auto value,
                      whole_number(word, 0, std::int64_t{1} << 60, file, child.line, "u64values"));
          values.push_back(value);
        } else {
          return at_line(file, child.line,
                         fmt::format("<{}> inside <{}>", child.name, element.name));
        }
      }
    }
    WEFT_ASSIGN(const auto n,
                whole_number(get(element, "nbobjs"), 1, 4096, file, element.line, "nbobjs"));
    const auto count = static_cast<std::size_t>(n);
    if (names.size() != count || values.size() != count * count) {
      return at_line(file, element.line,
                     fmt::format("nbobjs is {}, but {} indexes and {} values "
                                 "follow; {} and {} were expected",
                                 n, names.size(), values.size(), n, n * n));
    }
    if (get(element, "name") != "NVLinkBandwidth" || element.name != "distances2hetero") return {};
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = i + 1; j < count; ++j) {
        const auto value = values[i * count + j];
        if (value == 0) continue;
        const auto a = by_name.find(names[i]), b = by_name.find(names[j]);
        if (a == by_name.end() || b == by_name.end()) {
          return at_line(file, element.line,
                         fmt::format("NVLinkBandwidth between {} and {}, one of "
                                     "which is no GPU, switch or package here",
                                     names[i], names[j]));
        }
        topology.links.push_back({.a = a->second,
                                  .b = b->second,
                                  .kind = LinkKind::kNvlink,
                                  .bytes_per_s = static_cast<double>(value) * 1e6,
                                  .line = element.line});
      }
    }
    return {};
  }
};

}  // namespace

Result<Topology> read_hwloc_xml(std::string_view text, std::string_view file) {
  WEFT_ASSIGN(const XmlElement root, parse_xml(text, file));
  if (root.name != "topology" && root.name != "root") {
    return at_line(file, root.line, fmt::format("<{}> where <topology> was expected", root.name));
  }
  Reader reader{.file = file, .topology = {.name = std::string(file), .format = "hwloc"}};
  for (const XmlElement& child : root.children) {
    if (Reader::get(child, "name") != "NVLinkBandwidth") continue;
    for (const XmlElement& list : child.children) {
      std::istringstream words(list.name == "indexes" ? list.text : "");
      for (std::string word; words >> word;) reader.nvlink_ends.insert(word);
    }
  }
  for (const XmlElement& child : root.children) {
    if (child.name == "object") {
      WEFT_TRY(reader.read_object(child, kNoPart));
    } else if (child.name.starts_with("distances2")) {
      WEFT_TRY(reader.read_distances(child));
    } else if (child.name != "support" && child.name != "memattr" && child.name != "cpukind" &&
               child.name != "pci_locality" && child.name != "memtier" && child.name != "info") {
      return at_line(file, child.line, fmt::format("<{}> cannot be inside <topology>", child.name));
    }
  }
  if (reader.node == kNoPart) return at_line(file, root.line, "no Machine in it");
  reader.topology.parts[static_cast<std::size_t>(reader.node)].cpu_milli = reader.pus * 1000;
  return std::move(reader.topology);
}

}  // namespace weft::cluster
