// weft trace: one verb, several kinds of trace. The kind is told from the file; each
// kind answers the verbs that make sense for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/cli/commands.h"
#include "weft/workload/trace_format.h"

namespace weft::cli {

// What the verbs take; each uses its own part.
struct TraceArguments {
  std::vector<std::string> files;
  std::string format;  // of the input; empty: told from the file
  std::string order = "auto";
  std::uint32_t block_tokens = 0;
  bool strict = false;
  bool json = false;
  bool quiet = false;
  std::string out;
};

// Null: that kind of trace has no such verb.
struct TraceVerbs {
  using Verb = Result<int> (*)(const TraceArguments&);
  Verb check = nullptr, info = nullptr;
};

const TraceVerbs& request_trace_verbs();

}  // namespace weft::cli
