// weft diag ring FILE: the records of a ring, of a living or a dead process.
#include <cstdio>

#include "weft/base/json.h"
#include "weft/base/ring.h"
#include "weft/cli/commands.h"
#include "weft/comm/trace.h"

namespace weft::cli {
namespace {

struct RingArguments {
  std::string file;
  std::size_t last = 0;
  bool json = false;
};

int print_ring(const RingArguments& arguments) {
  const auto reader = RingReader::open(arguments.file);
  if (!reader) return report(reader.error());
  if (!arguments.json) {
    std::printf("%s: written by %s, rank %u, process %lld, incarnation %llu\n",
                arguments.file.c_str(), reader->writer().c_str(), reader->rank(),
                static_cast<long long>(reader->pid()),
                static_cast<unsigned long long>(reader->incarnation()));
  }
  for (std::uint32_t lane = 0; lane < reader->lanes(); ++lane) {
    const auto read = reader->read(lane);
    if (!read) return report(read.error());
    const std::size_t skip = arguments.last > 0 && read->records.size() > arguments.last
                                 ? read->records.size() - arguments.last
                                 : 0;
    if (!arguments.json) {
      std::printf("lane %u (%s): %zu records, %llu overwritten%s\n", lane,
                  reader->lane_name(lane).c_str(), read->records.size(),
                  static_cast<unsigned long long>(read->lost),
                  read->torn ? ", one begun and never ended" : "");
    }
    for (std::size_t i = skip; i < read->records.size(); ++i) {
      const RingRecord& record = read->records[i];
      const std::string text = comm::describe(record);
      if (arguments.json) {
        std::printf("%s\n", dump_json(Json{{"lane", lane},
                                           {"index", record.index},
                                           {"unix_ns", static_cast<std::int64_t>(record.ns) +
                                                           reader->unix_offset_ns()},
                                           {"kind", record.kind},
                                           {"text", text}})
                                .c_str());
      } else {
        std::printf("%10llu %18.6f  %s\n", static_cast<unsigned long long>(record.index),
                    static_cast<double>(record.ns) * 1e-9, text.c_str());
      }
    }
  }
  return 0;
}

}  // namespace

void add_diag_command(CLI::App& app, int& exit_code) {
  CLI::App* diag = app.add_subcommand("diag", "Say what a job did, from the records it left");
  diag->require_subcommand(1);
  CLI::App* ring = diag->add_subcommand(
      "ring",
      "Prints a record ring: which collectives a rank began and ended, with times in seconds\n"
      "of the machine's steady clock.\n\nExample: weft diag ring /dev/shm/weft-JOB/rank-0.ring");
  auto arguments = std::make_shared<RingArguments>();
  ring->add_option("file", arguments->file, "the ring's file")->required();
  ring->add_option("--last", arguments->last, "only the newest N records of each lane");
  ring->add_flag("--json", arguments->json, "one JSON object a record");
  ring->callback([arguments, &exit_code] { exit_code = print_ring(*arguments); });
}

}  // namespace weft::cli
