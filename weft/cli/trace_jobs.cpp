// The verbs of `weft trace` on job traces.
#include <cstdio>

#include "weft/cli/trace_command.h"
#include "weft/workload/job_reader.h"

namespace weft::cli {
namespace {

Result<workload::LoadedJobs> load(const TraceArguments& arguments) {
  return workload::load_jobs(arguments.files.front(),
                             {.format = arguments.format, .strict = arguments.strict});
}

Result<int> check(const TraceArguments& arguments) {
  WEFT_ASSIGN(const auto loaded, load(arguments));
  const std::string text =
      arguments.json ? dump_json(loaded.tally.json()) + "\n" : loaded.tally.text();
  std::fputs(text.c_str(), stdout);
  return loaded.tally.dropped() > 0 ? kExitCheck : 0;
}

Result<int> info(const TraceArguments& arguments) {
  WEFT_ASSIGN(const auto loaded, load(arguments));
  const auto facts = workload::describe_jobs(loaded.trace);
  const std::string text = arguments.json ? dump_json(workload::info_json(facts)) + "\n"
                                          : workload::info_text(loaded.trace, facts);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

const TraceVerbs& job_trace_verbs() {
  static constexpr TraceVerbs kVerbs{.check = &check, .info = &info};
  return kVerbs;
}

}  // namespace weft::cli
