#include <algorithm>
#include <cmath>
#include <map>

#include "weft/base/html.h"
#include "weft/base/units.h"
#include "weft/cluster/show.h"

namespace weft::cluster {
namespace {

constexpr int kFewNodes = 32;
constexpr double kGap = 12;

// One colour for each GPU model (hue by order of appearance), grey without GPUs, red down.
struct Palette {
  std::vector<std::string> models;
  std::string of(const std::string& model, int gpus, Health health) {
    if (health == Health::kDown) return "#d33";
    if (health == Health::kDrained) return "#e8a33d";
    if (gpus == 0) return "#c8c8c8";
    const auto at = std::find(models.begin(), models.end(), model);
    const auto index = static_cast<int>(at - models.begin());
    if (at == models.end()) models.push_back(model);
    constexpr const char* kHues[] = {"#4a7fb5", "#6aa84f", "#8e6bb8", "#c27ba0",
                                     "#45a5a5", "#b58b4a", "#7a8a3a", "#5b6ad0"};
    return kHues[index % 8];
  }
};

struct Drawing {
  const Topology& topology;
  std::vector<std::vector<PartId>> children = topology.children();
  std::vector<std::int32_t> gpus = topology.gpus_below();
  Palette palette = {};
  std::string out = {};
  double width = 0, height = 0;

  const Part& part(PartId id) const { return topology.parts[static_cast<std::size_t>(id)]; }

  void box(double x, double y, double w, double h, const std::string& fill,
           const std::string& title) {
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"2\" "
        "fill=\"{}\" stroke=\"#444\" stroke-width=\".6\"><title>{}</title></rect>\n",
        x, y, w, h, fill, escape_html(title));
    width = std::max(width, x + w + kGap);
    height = std::max(height, y + h + kGap);
  }
  void text(double x, double y, const std::string& words, int size = 11,
            const char* anchor = "start") {
    out += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y,
        size, anchor, escape_html(words));
    height = std::max(height, y + kGap);
    const double length = static_cast<double>(words.size()) * size * 0.6;
    if (std::string_view(anchor) == "start") width = std::max(width, x + length + kGap);
  }
  void line(double x1, double y1, double x2, double y2, const char* colour,
            const std::string& title) {
    out += fmt::format(
        "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"{}\" fill=\"none\"><title>{}"
        "</title></path>\n",
        x1, y1, x2, y2, colour, escape_html(title));
  }

  static std::string shorten(const std::string& name, std::size_t most) {
    return name.size() <= most ? name : name.substr(0, most - 2) + "..";
  }
  std::string model_of(PartId node) const {
    std::string model;
    const auto visit = [&](const auto& self, PartId id) -> void {
      if (part(id).kind == PartKind::kGpu && model.empty()) model = part(id).model;
      for (const PartId child : children[static_cast<std::size_t>(id)]) self(self, child);
    };
    visit(visit, node);
    return model;
  }
  std::string title_of(PartId id) const {
    const Part& p = part(id);
    std::string title =
        fmt::format("{}: {} GPUs", topology.path(id), gpus[static_cast<std::size_t>(id)]);
    if (p.memory_bytes > 0) title += ", " + human_bytes(static_cast<double>(p.memory_bytes));
    if (p.health != Health::kUp) title += fmt::format(", {}", to_string(p.health));
    return title;
  }

  // Few nodes: devices in their sockets and bridges, each level a row of boxes.
  void few(const std::vector<PartId>& nodes) {
    std::map<PartId, std::pair<double, double>> centre;
    const auto per_row =
        static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(nodes.size()))));
    const double top = 60;
    double x = kGap, y = top, row_height = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (i > 0 && i % per_row == 0) {
        x = kGap;
        y += row_height + 3 * kGap;
        row_height = 0;
      }
      const std::string mark = out;
      std::vector<PartId> devices;
      const auto visit = [&](const auto& self, PartId id) -> void {
        const PartKind kind = part(id).kind;
        if (kind >= PartKind::kPciSwitch) devices.push_back(id);
        for (const PartId child : children[static_cast<std::size_t>(id)]) self(self, child);
      };
      visit(visit, nodes[i]);
      const int columns = 4;
      const double cell_w = 92, cell_h = 30;
      const auto rows = (static_cast<int>(devices.size()) + columns - 1) / columns;
      const double w = columns * cell_w + 2 * kGap, h = 24 + rows * (cell_h + 4) + kGap;
      box(x, y, w, h, "#f4f4f0", title_of(nodes[i]));
      text(
          x + 6, y + 15,
          shorten(part(nodes[i]).name, 28) +
              (part(nodes[i]).model.empty() ? "" : " (" + shorten(part(nodes[i]).model, 20) + ")"));
      centre[nodes[i]] = {x + w / 2, y};
      for (std::size_t d = 0; d < devices.size(); ++d) {
        const Part& device = part(devices[d]);
        const double dx = x + kGap + static_cast<double>(d % columns) * cell_w;
        const double dy = y + 22 + static_cast<double>(d / columns) * (cell_h + 4);
        const bool gpu = device.kind == PartKind::kGpu;
        box(dx, dy, cell_w - 4, cell_h,
            gpu                             ? palette.of(device.model, 1, device.health)
            : device.kind == PartKind::kNic ? "#e9d8a6"
                                            : "#dde3e8",
            title_of(devices[d]));
        text(dx + 3, dy + 12, std::string(to_string(device.kind)), 9);
        text(dx + 3, dy + 24, shorten(device.name, 15), 9);
        centre[devices[d]] = {dx + cell_w / 2, dy + cell_h / 2};
      }
      row_height = std::max(row_height, h);
      x += w + kGap;
    }
    for (const Link& link : topology.links) {
      const auto a = centre.find(link.a), b = centre.find(link.b);
      if (a == centre.end() || b == centre.end()) continue;
      line(a->second.first, a->second.second, b->second.first, b->second.second,
           link.health == Health::kUp ? "#0a7d3388" : "#d33",
           fmt::format("{} {} to {}: {}/s", to_string(link.kind), part(link.a).name,
                       part(link.b).name, human_bytes(link.bytes_per_s)));
    }
    std::map<PartId, std::vector<PartId>> above;  // switch -> nodes, drawn along the top
    for (const PartId node : nodes) {
      if (part(node).parent != kNoPart) above[part(node).parent].push_back(node);
    }
    double at = kGap;
    for (const auto& [id, below] : above) {
      box(at, 22, 110, 22, "#ffe9c7", topology.path(id));
      text(at + 4, 37, fmt::format("{} {}", to_string(part(id).kind), shorten(part(id).name, 10)),
           10);
      for (const PartId node : below) {
        line(at + 55, 44, centre[node].first, centre[node].second, "#999", topology.path(node));
      }
      at += 120;
    }
  }

  // Many nodes: one frame for each parent of nodes, a square for each node.
  void many(const std::vector<PartId>& nodes) {
    std::map<PartId, std::map<PartId, std::vector<PartId>>>
        groups;  // pod or site -> parent -> nodes
    for (const PartId node : nodes) {
      const PartId parent = part(node).parent;
      PartId group = topology.above(parent, PartKind::kPod);
      if (group == kNoPart && parent != kNoPart) group = part(parent).parent;
      groups[group][parent].push_back(node);
    }
    const double square = 11, page = 1160;
    double y = 50;
    for (const auto& [group, parents] : groups) {
      std::size_t members = 0;
      for (const auto& [parent, below] : parents) members += below.size();
      text(kGap, y,
           fmt::format("{}: {} nodes in {} blocks",
                       group == kNoPart ? "no pod" : topology.path(group), members, parents.size()),
           13);
      y += 8;
      double x = kGap, row_height = 0;
      for (const auto& [parent, below] : parents) {
        const bool wide = below.size() > 64;
        const auto columns = wide ? static_cast<std::size_t>((page - 3 * kGap) / square)
                                  : static_cast<std::size_t>(6);
        const auto used = std::min(columns, below.size());
        const double w = static_cast<double>(std::max<std::size_t>(used, 5)) * square + 8;
        const double h =
            std::ceil(static_cast<double>(below.size()) / static_cast<double>(columns)) * square +
            20;
        if (x + w > page && x > kGap) {
          x = kGap;
          y += row_height + 6;
          row_height = 0;
        }
        box(x, y, w, h, "#f4f4f0",
            fmt::format("{}: {} nodes", parent == kNoPart ? "all" : topology.path(parent),
                        below.size()));
        text(x + 4, y + 11, parent == kNoPart ? "nodes" : shorten(part(parent).name, 9), 9);
        for (std::size_t i = 0; i < below.size(); ++i) {
          const auto index = static_cast<std::size_t>(below[i]);
          box(x + 4 + static_cast<double>(i % columns) * square,
              y + 15 + static_cast<double>(i / columns) * square, square - 2, square - 2,
              palette.of(model_of(below[i]), gpus[index], part(below[i]).health),
              title_of(below[i]));
        }
        row_height = std::max(row_height, h);
        x += w + 6;
      }
      y += row_height + 24;
    }
  }
};

}  // namespace

std::string topology_svg(const Topology& topology) {
  Drawing drawing{.topology = topology};
  const std::vector<PartId> nodes = topology.of_kind(PartKind::kNode);
  drawing.text(
      kGap, 16,
      fmt::format("{} nodes, {} GPUs, {} links ({})", nodes.size(),
                  topology.of_kind(PartKind::kGpu).size(), topology.links.size(), topology.format),
      13);
  if (static_cast<int>(nodes.size()) <= kFewNodes)
    drawing.few(nodes);
  else
    drawing.many(nodes);
  double x = kGap;
  const double y = drawing.height + 6;
  for (const std::string& model : std::vector(drawing.palette.models)) {
    drawing.box(x, y, 10, 10, drawing.palette.of(model, 1, Health::kUp), model);
    drawing.text(x + 14, y + 9, model.empty() ? "GPU" : Drawing::shorten(model, 24), 10);
    x += 24 +
         7 * static_cast<double>(std::min<std::size_t>(std::max<std::size_t>(model.size(), 3), 24));
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\">\n<rect width=\"100%\" "
      "height=\"100%\" fill=\"white\"/>\n{2}</svg>\n",
      drawing.width, drawing.height, drawing.out);
}

}  // namespace weft::cluster
