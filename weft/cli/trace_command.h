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
  std::string tokenizer;  // model that counts the tokens of text
  std::uint32_t block_tokens = 0;
  bool strict = false;
  bool json = false;
  bool quiet = false;
  std::string out, html;
  std::string to = "weft";                      // convert
  double window_s = -1;                         // fit
  std::string gaps = "auto", lengths = "rows";  // fit
  double from_s = 0, to_s = 1e18, speed = 1;    // slice
  std::string label;                            // slice
  std::int64_t rows = 0;                        // slice, gen: at most so many
  std::uint64_t seed = 0;
};

// Null: that kind of trace has no such verb.
struct TraceVerbs {
  using Verb = Result<int> (*)(const TraceArguments&);
  Verb check = nullptr, info = nullptr, import = nullptr, fit = nullptr, convert = nullptr,
       slice = nullptr, compare = nullptr;
};

const TraceVerbs& request_trace_verbs();
const TraceVerbs& job_trace_verbs();

// `weft trace gen`: no file tells its kind, so it has options of its own.
void add_trace_gen_command(CLI::App& trace_command, int& exit_code);

}  // namespace weft::cli
