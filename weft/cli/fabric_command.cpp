// weft fabric import|show: what a cluster looks like.
#include <cstdio>
#include <memory>

#include "weft/base/file.h"
#include "weft/cli/commands.h"
#include "weft/cluster/show.h"
#include "weft/cluster/topology_reader.h"

namespace weft::cli {
namespace {

struct FabricArguments {
  std::string file, format, out, svg;
  bool json = false, all = false;
};

Result<int> show(const FabricArguments& arguments) {
  WEFT_ASSIGN(const cluster::Topology topology,
              cluster::read_topology(arguments.file, arguments.format));
  if (!arguments.out.empty()) {
    WEFT_TRY(write_file_atomic(arguments.out, dump_json(cluster::to_json(topology)) + "\n"));
  }
  if (!arguments.svg.empty()) {
    WEFT_TRY(write_file_atomic(arguments.svg, cluster::topology_svg(topology)));
  }
  const std::string text = arguments.json ? dump_json(cluster::to_json(topology)) + "\n"
                                          : cluster::topology_text(topology, arguments.all);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

void add_fabric_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("fabric", "Read and show clusters: nodes, devices, links");
  command->require_subcommand(1);
  std::string formats = "Formats:\n";
  for (const auto& format : cluster::topology_formats()) {
    formats += fmt::format("  {:<17} {}\n", format.name, format.description);
  }
  command->footer(formats);
  for (const bool writes : {true, false}) {
    const auto arguments = std::make_shared<FabricArguments>();
    CLI::App* verb = command->add_subcommand(
        writes ? "import" : "show", writes ? "Read a topology, check it and write it as Weft's JSON"
                                           : "Print a topology as text, JSON or SVG");
    verb->footer(writes ? "Example: weft fabric import topo.csv --out cluster.json"
                        : "Example: weft fabric show p4d-24xl-topo.xml --svg node.svg");
    verb->add_option("FILE", arguments->file, "topology or inventory file")->required();
    verb->add_option("--format", arguments->format,
                     "of the file (default: told from its beginning)");
    if (writes) verb->add_option("--out", arguments->out, "JSON file to write")->required();
    verb->add_option("--svg", arguments->svg, "also draw it into this file");
    verb->add_flag("--json", arguments->json, "print JSON");
    verb->add_flag("--all", arguments->all,
                   "a line for every part instead of for equal ones together");
    verb->callback([arguments, &exit_code] {
      const auto result = show(*arguments);
      exit_code = result ? *result : report(result.error());
    });
  }
}

}  // namespace weft::cli
