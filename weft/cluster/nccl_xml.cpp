// NCCL's topology files (NCCL_TOPO_FILE) and search graphs (NCCL_GRAPH_DUMP_FILE).
#include <array>
#include <map>

#include "weft/cluster/text_rows.h"
#include "weft/cluster/topology_reader.h"
#include "weft/cluster/xml.h"

namespace weft::cluster {
namespace {

// What one NVLink of a generation carries in one direction, by the GPU's compute
// capability (NVIDIA's data sheets of P100, V100, A100, H100; NCCL's topo.cc agrees to
// within its measured discount).
double nvlink_bytes_per_s(std::int64_t sm) { return sm < 70 ? 20e9 : 25e9; }

struct Reader {
  std::string_view file;
  Topology topology;
  struct Nvlink {
    PartId gpu;
    std::string target;
    std::int64_t count, sm;
    int line;
  };
  std::vector<Nvlink> nvlinks = {};
  std::map<std::string, PartId, std::less<>> by_bus = {};
  int gpus = 0, nics = 0;

  Result<std::string> need(const XmlElement& element, std::string_view name) const {
    const std::string* value = element.attribute(name);
    if (value == nullptr) {
      return at_line(file, element.line,
                     fmt::format("<{}> has no attribute {}", element.name, name));
    }
    return *value;
  }

  // "16 GT/s" times lanes, in bytes a second after line coding; 0 where the file has none.
  Result<double> pci_rate(const XmlElement& element) const {
    const std::string* speed = element.attribute("link_speed");
    const std::string* width = element.attribute("link_width");
    if (speed == nullptr || width == nullptr || speed->empty() || *width == "0") return 0.0;
    std::string_view rate = *speed;
    const auto unit = rate.find(" GT/s");
    if (unit == std::string_view::npos) {
      return at_line(file, element.line,
                     fmt::format("link_speed: expected e.g. \"16 GT/s\", got \"{}\"", *speed));
    }
    WEFT_ASSIGN(const double giga,
                real_number(rate.substr(0, unit), 1, 1024, file, element.line, "link_speed"));
    WEFT_ASSIGN(const auto lanes, whole_number(*width, 1, 64, file, element.line, "link_width"));
    const double coding = giga < 8 ? 0.8 : 128.0 / 130.0;
    return giga * 1e9 / 8 * coding * static_cast<double>(lanes);
  }

  Status read_pci(const XmlElement& element, PartId parent) {
    WEFT_ASSIGN(const std::string bus, need(element, "busid"));
    WEFT_ASSIGN(const std::string type, need(element, "class"));
    WEFT_ASSIGN(const double rate, pci_rate(element));
    constexpr std::string_view kShape = "xxxx:xx:xx.x";
    bool good = bus.size() == kShape.size();
    for (std::size_t i = 0; good && i < bus.size(); ++i) {
      good = kShape[i] == 'x' ? std::isxdigit(static_cast<unsigned char>(bus[i])) != 0
                              : bus[i] == kShape[i];
    }
    if (!good) {
      return at_line(file, element.line,
                     fmt::format("busid: expected \"dddd:bb:dd.f\", got \"{}\"", bus));
    }
    Part part{.parent = parent, .name = bus, .up_bytes_per_s = rate, .line = element.line};
    if (type.starts_with("0x0302") || type.starts_with("0x0300")) {
      part.kind = PartKind::kGpu;
      ++gpus;
      if (const std::string* device = element.attribute("device")) part.model = *device;
    } else if (type.starts_with("0x02")) {
      part.kind = PartKind::kNic;
      ++nics;
    } else if (type.starts_with("0x0604")) {
      part.kind = PartKind::kPciSwitch;
    } else {
      return at_line(file, element.line,
                     fmt::format("class {}: neither a GPU (0x03....), a network card (0x02....) "
                                 "nor a bridge (0x0604..)",
                                 type));
    }
    const PartKind kind = part.kind;
    const PartId id = topology.add(std::move(part));
    if (!by_bus.try_emplace(bus, id).second) {
      return at_line(file, element.line, fmt::format("busid {} is there twice", bus));
    }
    for (const XmlElement& child : element.children) {
      if (child.name == "pci" && kind == PartKind::kPciSwitch) {
        WEFT_TRY(read_pci(child, id));
      } else if (child.name == "gpu" && kind == PartKind::kGpu) {
        WEFT_TRY(read_gpu(child, id));
      } else if (child.name != "nic") {
        return at_line(file, child.line,
                       fmt::format("<{}> cannot be inside a <pci> of class {}", child.name, type));
      }
    }
    return {};
  }

  Status read_gpu(const XmlElement& element, PartId gpu) {
    std::int64_t sm = 80;
    if (const std::string* text = element.attribute("sm")) {
      WEFT_ASSIGN(sm, whole_number(*text, 10, 999, file, element.line, "sm"));
    }
    for (const XmlElement& child : element.children) {
      if (child.name != "nvlink") {
        return at_line(file, child.line, fmt::format("<{}> cannot be inside <gpu>", child.name));
      }
      WEFT_ASSIGN(std::string target, need(child, "target"));
      WEFT_ASSIGN(const std::string count_text, need(child, "count"));
      WEFT_ASSIGN(const auto count, whole_number(count_text, 1, 36, file, child.line, "count"));
      nvlinks.push_back({gpu, std::move(target), count, sm, child.line});
    }
    return {};
  }

  Status read_cpu(const XmlElement& element, PartId node) {
    WEFT_ASSIGN(const std::string numa, need(element, "numaid"));
    WEFT_ASSIGN(const auto id, whole_number(numa, -1, 4096, file, element.line, "numaid"));
    std::string model;
    if (const std::string* vendor = element.attribute("vendor")) model = *vendor;
    const PartId socket = topology.add({.kind = PartKind::kSocket,
                                        .parent = node,
                                        .name = fmt::format("numa{}", id),
                                        .model = model,
                                        .line = element.line});
    for (const XmlElement& child : element.children) {
      if (child.name == "pci") {
        WEFT_TRY(read_pci(child, socket));
      } else if (child.name == "nic") {
        for (const XmlElement& net : child.children) {
          if (net.name != "net") {
            return at_line(file, net.line, fmt::format("<{}> cannot be inside <nic>", net.name));
          }
          WEFT_ASSIGN(const std::string name, need(net, "name"));
          double rate = 0;
          if (const std::string* speed = net.attribute("speed")) {  // Mbit/s
            WEFT_ASSIGN(const double mbit, real_number(*speed, 0, 1e9, file, net.line, "speed"));
            rate = mbit * 1e6 / 8;
          }
          topology.add({.kind = PartKind::kNic,
                        .parent = socket,
                        .name = name,
                        .up_bytes_per_s = rate,
                        .line = net.line});
        }
      } else {
        return at_line(file, child.line, fmt::format("<{}> cannot be inside <cpu>", child.name));
      }
    }
    return {};
  }

  Status resolve_nvlinks() {
    for (const Nvlink& nvlink : nvlinks) {
      const auto target = by_bus.find(nvlink.target);
      if (target == by_bus.end()) {
        return at_line(file, nvlink.line,
                       fmt::format("nvlink target {} is no busid of this file", nvlink.target));
      }
      if (target->second == nvlink.gpu) {  // Azure's ncv4 dump writes each GPU as its own peer
        topology.notes.push_back(
            fmt::format("line {}: {} NVLinks of {} to itself were left out: the file does not "
                        "say where they lead",
                        nvlink.line, nvlink.count, nvlink.target));
        continue;
      }
      topology.links.push_back(
          {.a = nvlink.gpu,
           .b = target->second,
           .kind = LinkKind::kNvlink,
           .bytes_per_s = static_cast<double>(nvlink.count) * nvlink_bytes_per_s(nvlink.sm),
           .line = nvlink.line});
    }
    return {};
  }
};

}  // namespace

Result<Topology> read_nccl_topology(std::string_view text, std::string_view file) {
  WEFT_ASSIGN(const XmlElement root, parse_xml(text, file));
  Reader reader{.file = file, .topology = {.name = std::string(file), .format = "nccl"}};
  if (root.name != "system") {
    return at_line(file, root.line, fmt::format("<{}> where <system> was expected", root.name));
  }
  WEFT_ASSIGN(const std::string version, reader.need(root, "version"));
  if (version != "1") {
    return at_line(file, root.line, fmt::format("version {} of the format; 1 is known", version));
  }
  const PartId node =
      reader.topology.add({.kind = PartKind::kNode, .name = "node0", .line = root.line});
  for (const XmlElement& child : root.children) {
    if (child.name != "cpu") {
      return at_line(file, child.line, fmt::format("<{}> where <cpu> was expected", child.name));
    }
    WEFT_TRY(reader.read_cpu(child, node));
  }
  if (reader.gpus + reader.nics == 0) {
    return at_line(file, root.line, "neither a GPU nor a network card in it");
  }
  WEFT_TRY(reader.resolve_nvlinks());
  return std::move(reader.topology);
}

// A search result: channels, each an order of the GPUs. The GPUs become one node, each
// step of a channel a link of the graph's intra-node speed.
Result<Topology> read_nccl_graph(std::string_view text, std::string_view file) {
  WEFT_ASSIGN(const XmlElement root, parse_xml(text, file));
  if (root.name != "graphs") {
    return at_line(file, root.line, fmt::format("<{}> where <graphs> was expected", root.name));
  }
  Topology topology{.name = std::string(file), .format = "nccl-graph"};
  const PartId node = topology.add({.kind = PartKind::kNode, .name = "node0", .line = root.line});
  std::map<std::int64_t, PartId> gpus;
  const auto number = [&](const XmlElement& element, std::string_view name, std::int64_t low,
                          std::int64_t high) -> Result<std::int64_t> {
    const std::string* value = element.attribute(name);
    if (value == nullptr) {
      return at_line(file, element.line,
                     fmt::format("<{}> has no attribute {}", element.name, name));
    }
    return whole_number(*value, low, high, file, element.line, name);
  };
  for (const XmlElement& graph : root.children) {
    if (graph.name != "graph") {
      return at_line(file, graph.line, fmt::format("<{}> where <graph> was expected", graph.name));
    }
    WEFT_ASSIGN(const auto channels, number(graph, "nchannels", 0, 64));
    WEFT_ASSIGN(const auto id, number(graph, "id", 0, 64));
    double gigabytes = 0;
    for (const char* key : {"speedintra", "bwintra"}) {
      if (const std::string* value = graph.attribute(key)) {
        WEFT_ASSIGN(gigabytes, real_number(*value, 0, 1e6, file, graph.line, key));
      }
    }
    if (static_cast<std::int64_t>(graph.children.size()) != channels) {
      return at_line(
          file, graph.line,
          fmt::format("nchannels is {}, but {} channels follow", channels, graph.children.size()));
    }
    for (const XmlElement& channel : graph.children) {
      PartId before = kNoPart;
      std::map<std::int64_t, int> in_channel;
      for (const XmlElement& step : channel.children) {
        if (step.name == "net") continue;
        if (channel.name != "channel" || step.name != "gpu") {
          return at_line(file, step.line,
                         fmt::format("<{}> inside <{}>; <gpu> inside <channel> "
                                     "was expected",
                                     step.name, channel.name));
        }
        WEFT_ASSIGN(const auto device, number(step, "dev", 0, 1023));
        if (!in_channel.try_emplace(device, step.line).second) {
          return at_line(file, step.line, fmt::format("gpu {} is twice in one channel", device));
        }
        const auto [at, fresh] = gpus.try_emplace(device, kNoPart);
        if (fresh) {
          at->second = topology.add({.kind = PartKind::kGpu,
                                     .parent = node,
                                     .name = fmt::format("gpu{}", device),
                                     .line = step.line});
        }
        if (before != kNoPart && id == 0) {  // graph 0 is the ring
          topology.links.push_back({.a = before,
                                    .b = at->second,
                                    .kind = LinkKind::kRing,
                                    .bytes_per_s = gigabytes * 1e9,
                                    .line = step.line});
        }
        before = at->second;
      }
    }
  }
  if (gpus.empty()) return at_line(file, root.line, "no channel with a GPU in it");
  return topology;
}

}  // namespace weft::cluster
