// The verbs of `weft trace` for traces of requests.
#include <cstdio>
#include <filesystem>
#include <optional>

#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/base/progress.h"
#include "weft/cli/trace_command.h"
#include "weft/model/load.h"
#include "weft/workload/request_compare.h"
#include "weft/workload/request_info.h"
#include "weft/workload/request_model.h"
#include "weft/workload/request_page.h"
#include "weft/workload/request_reader.h"
#include "weft/workload/servegen.h"

namespace weft::cli {
namespace {

using namespace weft::workload;

Result<RequestReadOptions> read_options(const TraceArguments& arguments,
                                        std::optional<Progress>& bar, const std::string& file) {
  RequestReadOptions options;
  options.format = arguments.format;
  options.strict = arguments.strict;
  options.order = arguments.order == "sort"   ? TimeOrder::kSort
                  : arguments.order == "drop" ? TimeOrder::kDrop
                                              : TimeOrder::kAuto;
  options.block_tokens = arguments.block_tokens;
  if (!arguments.tokenizer.empty()) {
    WEFT_ASSIGN(const model::Model model, model::load_model(arguments.tokenizer));
    if (model.tokenizer == nullptr) {
      return fail(ErrorCode::kInvalidArgument, "{} has no tokenizer", arguments.tokenizer);
    }
    options.count_tokens = [tokenizer = model.tokenizer](std::string_view text) {
      return static_cast<std::uint32_t>(tokenizer->encode(text).size());
    };
  }
  options.progress = [&bar, file, quiet = arguments.quiet](std::int64_t bytes, std::int64_t of) {
    if (!bar) bar.emplace("reading " + file, of, "B", ProgressOptions{.quiet = quiet});
    bar->set(bytes);
  };
  return options;
}

Result<LoadedRequests> load(const TraceArguments& arguments, const std::string& file) {
  std::optional<Progress> bar;
  WEFT_ASSIGN(RequestReadOptions options, read_options(arguments, bar, file));
  return load_requests(file, std::move(options));
}

Result<int> check(const TraceArguments& arguments) {
  const std::string& file = arguments.files.front();
  std::optional<Progress> bar;
  WEFT_ASSIGN(RequestReadOptions options, read_options(arguments, bar, file));
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

void print(const Json& json) { std::printf("%s\n", dump_json(json).c_str()); }

Result<int> info(const TraceArguments& arguments) {
  const std::string& file = arguments.files.front();
  if (std::filesystem::is_directory(file)) {
    WEFT_ASSIGN(const ClientPool pool, load_clients(file));
    if (arguments.json) {
      print(clients_json(pool));
    } else {
      std::printf("%s", clients_text(pool).c_str());
    }
    return 0;
  }
  WEFT_ASSIGN(const LoadedRequests loaded, load(arguments, file));
  const RequestInfo described = describe_requests(loaded.trace);
  if (!arguments.html.empty()) {
    WEFT_TRY(write_request_page({&loaded.trace}, nullptr, arguments.html));
  }
  if (arguments.json) {
    Json out = {{"file", loaded.trace.name}, {"format", loaded.trace.format}};
    out["reading"] = loaded.tally.json();
    out.update(info_json(described));
    print(out);
  } else {
    std::printf("%s", info_text(loaded.trace, described).c_str());
    std::printf("%s", loaded.tally.text().c_str());
  }
  return 0;
}

Result<int> fit(const TraceArguments& arguments) {
  WEFT_ASSIGN(const LoadedRequests loaded, load(arguments, arguments.files.front()));
  const FitOptions options{.window_s = arguments.window_s,
                           .gaps = arguments.gaps,
                           .lengths = arguments.lengths,
                           .seed = arguments.seed};
  WEFT_ASSIGN(const FitReport report, fit_requests(loaded.trace, options));
  if (!arguments.out.empty()) {
    WEFT_TRY(write_file_atomic(arguments.out, dump_json(report.model.json()) + "\n"));
  }
  if (!arguments.html.empty()) {
    WEFT_TRY(write_request_page({&loaded.trace}, &report, arguments.html));
  }
  if (arguments.json) {
    Json out = {{"file", loaded.trace.name}, {"reading", loaded.tally.json()}};
    out.update(report.json());
    print(out);
  } else {
    std::printf("%s: %zu requests\n%s", loaded.trace.name.c_str(), loaded.trace.rows.size(),
                report.text().c_str());
  }
  return 0;
}

// Writes a trace and says what the format had no place for.
Result<int> write(const TraceArguments& arguments, const RequestTrace& trace,
                  std::string_view format, const RowTally& tally) {
  std::vector<std::string> lost;
  WEFT_TRY(write_requests(trace, format, arguments.out, &lost));
  if (arguments.json) {
    print({{"file", arguments.out},
           {"format", format},
           {"requests", trace.rows.size()},
           {"reading", tally.json()},
           {"lost", lost}});
    return 0;
  }
  std::printf("%s (%s): %zu requests\n%s", arguments.out.c_str(), std::string(format).c_str(),
              trace.rows.size(), tally.text().c_str());
  for (const auto& each : lost) std::printf("  not kept: %s\n", each.c_str());
  return 0;
}

Result<int> import(const TraceArguments& arguments) {
  WEFT_ASSIGN(const LoadedRequests loaded, load(arguments, arguments.files.front()));
  return write(arguments, loaded.trace, "weft", loaded.tally);
}

Result<int> convert(const TraceArguments& arguments) {
  WEFT_ASSIGN(const LoadedRequests loaded, load(arguments, arguments.files.front()));
  return write(arguments, loaded.trace, arguments.to, loaded.tally);
}

Result<int> slice(const TraceArguments& arguments) {
  WEFT_ASSIGN(LoadedRequests loaded, load(arguments, arguments.files.front()));
  WEFT_ASSIGN(const RequestTrace cut, slice_requests(loaded.trace, {.from_s = arguments.from_s,
                                                                    .until_s = arguments.to_s,
                                                                    .rows = arguments.rows,
                                                                    .label = arguments.label,
                                                                    .speed = arguments.speed}));
  return write(arguments, cut, "weft", loaded.tally);
}

Result<int> compare(const TraceArguments& arguments) {
  std::vector<LoadedRequests> two;
  for (const std::string& file : arguments.files) {
    WEFT_ASSIGN(LoadedRequests loaded, load(arguments, file));
    two.push_back(std::move(loaded));
  }
  const RequestComparison compared = compare_requests(two[0].trace, two[1].trace);
  if (!arguments.html.empty()) {
    WEFT_TRY(write_request_page({&two[0].trace, &two[1].trace}, nullptr, arguments.html));
  }
  if (arguments.json) {
    print(compared.json());
  } else {
    std::printf("%s", compared.text(two[0].trace.name, two[1].trace.name).c_str());
  }
  return 0;
}

}  // namespace

const TraceVerbs& request_trace_verbs() {
  static constexpr TraceVerbs kVerbs{.check = check,
                                     .info = info,
                                     .import = import,
                                     .fit = fit,
                                     .convert = convert,
                                     .slice = slice,
                                     .compare = compare};
  return kVerbs;
}

}  // namespace weft::cli
