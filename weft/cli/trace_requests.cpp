// The verbs of `weft trace` for traces of requests.
#include <cstdio>
#include <optional>

#include "weft/base/json.h"
#include "weft/base/progress.h"
#include "weft/cli/trace_command.h"
#include "weft/workload/request_info.h"
#include "weft/workload/request_reader.h"

namespace weft::cli {
namespace {

using namespace weft::workload;

RequestReadOptions read_options(const TraceArguments& arguments, std::optional<Progress>& bar,
                                const std::string& file) {
  RequestReadOptions options;
  options.format = arguments.format;
  options.strict = arguments.strict;
  options.order = arguments.order == "sort"   ? TimeOrder::kSort
                  : arguments.order == "drop" ? TimeOrder::kDrop
                                              : TimeOrder::kAuto;
  options.block_tokens = arguments.block_tokens;
  options.progress = [&bar, file, quiet = arguments.quiet](std::int64_t bytes, std::int64_t of) {
    if (!bar) bar.emplace("reading " + file, of, "B", ProgressOptions{.quiet = quiet});
    bar->set(bytes);
  };
  return options;
}

Result<LoadedRequests> load(const TraceArguments& arguments, const std::string& file) {
  std::optional<Progress> bar;
  return load_requests(file, read_options(arguments, bar, file));
}

Result<int> check(const TraceArguments& arguments) {
  const std::string& file = arguments.files.front();
  std::optional<Progress> bar;
  RequestReadOptions options = read_options(arguments, bar, file);
  RowTally tally;
  std::string format;
  if (options.order == TimeOrder::kSort) {
    WEFT_ASSIGN(const LoadedRequests loaded, load_requests(file, options));
    tally = loaded.tally;
    format = loaded.trace.format;
  } else {  // nothing is kept: any size
    WEFT_ASSIGN(RequestReader reader, RequestReader::open(file, options));
    Request row;
    std::span<const std::uint64_t> blocks;
    for (bool more = true; more;) {
      WEFT_ASSIGN(more, reader.next(row, blocks));
    }
    tally = reader.tally();
    format = reader.facts().format;
  }
  bar.reset();
  if (arguments.json) {
    Json out = {{"file", file}, {"format", format}};
    out.update(tally.json());
    std::printf("%s\n", dump_json(out).c_str());
  } else {
    std::printf("%s (%s): %s", file.c_str(), format.c_str(), tally.text().c_str());
  }
  return tally.dropped() == 0 ? 0 : kExitCheck;
}

Result<int> info(const TraceArguments& arguments) {
  WEFT_ASSIGN(const LoadedRequests loaded, load(arguments, arguments.files.front()));
  const RequestInfo described = describe_requests(loaded.trace);
  if (arguments.json) {
    Json out = {{"file", loaded.trace.name}, {"format", loaded.trace.format}};
    out["reading"] = loaded.tally.json();
    out.update(info_json(described));
    std::printf("%s\n", dump_json(out).c_str());
  } else {
    std::printf("%s", info_text(loaded.trace, described).c_str());
    std::printf("%s", loaded.tally.text().c_str());
  }
  return 0;
}

}  // namespace

const TraceVerbs& request_trace_verbs() {
  static constexpr TraceVerbs kVerbs{.check = check, .info = info};
  return kVerbs;
}

}  // namespace weft::cli
