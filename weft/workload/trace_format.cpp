#include "weft/workload/trace_format.h"

#include <algorithm>
#include <array>

#include "weft/base/json.h"
#include "weft/base/nearest.h"
#include "weft/workload/field_text.h"
#include "weft/workload/line_source.h"

namespace weft::workload {
namespace {

constexpr std::size_t kHeadLines = 4, kArrayLines = 16;
constexpr std::size_t kHeadLineBytes = std::size_t{1} << 16;

std::vector<const TraceFormat*> all_formats() {
  std::vector<const TraceFormat*> all;
  for (const TraceFormat& format : job_formats()) all.push_back(&format);
  for (const TraceFormat& format : request_formats()) all.push_back(&format);
  return all;
}

}  // namespace

std::string_view to_string(TraceKind kind) {
  return kind == TraceKind::kRequest ? "request" : "job";
}

Result<TraceHead> read_trace_head(const std::filesystem::path& path) {
  TraceHead head;
  head.path = path;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    head.is_directory = true;
    return head;
  }
  WEFT_ASSIGN(LineSource source, LineSource::open(path));
  std::string_view line;
  // An array that is spread over lines names its keys a few lines down.
  while (head.lines.size() < (head.starts_json_array ? kArrayLines : kHeadLines)) {
    WEFT_ASSIGN(const bool more, source.next(line));
    if (!more) break;
    if (head.lines.empty() && trimmed(line).starts_with('[')) head.starts_json_array = true;
    head.lines.emplace_back(line.substr(0, kHeadLineBytes));
  }
  if (head.lines.empty()) {
    return fail(ErrorCode::kInvalidArgument, "{} is empty; a trace has at least a header",
                path.string());
  }
  return head;
}

Result<const TraceFormat*> detect_trace_format(const std::filesystem::path& path,
                                               std::string_view name) {
  const auto formats = all_formats();
  std::vector<std::string> names;
  for (const TraceFormat* format : formats) names.emplace_back(format->name);
  std::string listed;
  for (const auto& each : names) listed += fmt::format("{}{}", listed.empty() ? "" : ", ", each);
  if (!name.empty()) {
    const auto found = std::ranges::find(formats, name, &TraceFormat::name);
    if (found != formats.end()) return *found;
    const std::string near = nearest_name(name, names);
    return fail(ErrorCode::kInvalidArgument, "there is no trace format '{}'{}; known: {}", name,
                near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near), listed);
  }
  WEFT_ASSIGN(const TraceHead head, read_trace_head(path));
  for (const TraceFormat* format : formats) {
    if (format->matches(head)) return format;
  }
  if (head.is_directory) {
    return fail(ErrorCode::kInvalidArgument, "{}: this folder holds no trace that Weft knows ({})",
                path.string(), listed);
  }
  return fail(ErrorCode::kInvalidArgument,
              "{}: the first line is of no known trace format; it begins \"{}\"; known formats: {} "
              "(name one with --format)",
              path.string(), head.lines.front().substr(0, 80), listed);
}

bool has_columns(const TraceHead& head, std::span<const std::string_view> columns) {
  if (head.is_directory || head.lines.empty()) return false;
  const CsvHeader header(head.lines.front());
  return std::ranges::all_of(
      columns, [&](std::string_view column) { return header.find(column).has_value(); });
}

bool has_keys(const TraceHead& head, std::span<const std::string_view> keys) {
  if (head.is_directory || head.lines.empty() || head.starts_json_array) return false;
  const std::string_view line = head.lines.front();
  if (!trimmed(line).starts_with('{')) return false;
  const auto json = parse_json(line, "line 1");
  if (json) {
    return json->is_object() &&
           std::ranges::all_of(keys, [&](auto key) { return json_find(*json, key) != nullptr; });
  }
  // A row that is damaged, or longer than what was read, still names its keys.
  return std::ranges::all_of(keys, [&](std::string_view key) {
    return line.find(fmt::format("\"{}\"", key)) != std::string_view::npos;
  });
}

}  // namespace weft::workload
