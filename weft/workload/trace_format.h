// Which format a trace file has, and whether its rows are requests or jobs: told
// from its first lines, never from its name.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"

namespace weft::workload {

enum class TraceKind { kRequest, kJob };
std::string_view to_string(TraceKind kind);

// The beginning of a trace.
struct TraceHead {
  std::filesystem::path path;
  bool is_directory = false;
  std::vector<std::string> lines;  // the first few, without ends and byte-order mark
  bool starts_json_array = false;  // the first byte that is no blank is '['
};

struct TraceFormat {
  std::string_view name;  // as --format takes it
  TraceKind kind;
  std::string_view description;  // one line for `weft trace --help`
  bool (*matches)(const TraceHead& head);
};

// All formats, the more particular ones first within a kind: a head that two match is
// of the first one's.
std::span<const TraceFormat> request_formats();
std::span<const TraceFormat> job_formats();

Result<TraceHead> read_trace_head(const std::filesystem::path& path);
// The format called `name`, or, where `name` is empty, the one that matches the
// beginning of the file; the error lists the known formats and shows the first line.
Result<const TraceFormat*> detect_trace_format(const std::filesystem::path& path,
                                               std::string_view name = {});

// For `matches`: the first line's CSV header has all `columns`.
bool has_columns(const TraceHead& head, std::span<const std::string_view> columns);
// For `matches`: the first line is a JSON object whose keys include all `keys`.
bool has_keys(const TraceHead& head, std::span<const std::string_view> keys);

}  // namespace weft::workload
