// Request traces to files. The whole text is made first: a file appears whole or not.
#include <algorithm>

#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/workload/field_text.h"
#include "weft/workload/request_reader.h"

namespace weft::workload {
namespace {

std::string weft_text(const RequestTrace& trace) {
  Json facts = {{"source", trace.format}, {"times", trace.has_times}};
  if (trace.block_tokens != 0) facts["block_tokens"] = trace.block_tokens;
  if (trace.zero_unix_ns) facts["zero"] = format_date_time(*trace.zero_unix_ns);
  if (!trace.parameters.empty()) facts["parameters"] = trace.parameters;
  std::string out = fmt::format("#weft-requests 1 {}\n", dump_json(facts));
  out += "time_s,input_tokens,output_tokens,label,session,failed,elapsed_s,blocks\n";
  for (const Request& row : trace.rows) {
    fmt::format_to(
        std::back_inserter(out), "{},{},{},{},{},{},", format_seconds(row.time_ns),
        row.input_tokens, row.output_tokens, csv_cell(trace.labels.at(row.label)),
        row.session < 0 ? "" : csv_cell(trace.sessions.at(static_cast<std::size_t>(row.session))),
        row.failed ? "1" : "");
    if (row.elapsed_s >= 0) fmt::format_to(std::back_inserter(out), "{}", row.elapsed_s);
    char separator = ',';
    if (row.block_count == 0) out += ',';
    for (const std::uint64_t id : trace.blocks(row)) {
      out += separator;
      fmt::format_to(std::back_inserter(out), "{}", id);
      separator = ' ';
    }
    out += '\n';
  }
  return out;
}

std::string azure_text(const RequestTrace& trace) {
  std::string out = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n";
  const std::int64_t zero = trace.zero_unix_ns.value_or(0);
  for (const Request& row : trace.rows) {
    std::string date = format_date_time(zero + row.time_ns);
    date.resize(date.size() - 2);  // seven decimals
    fmt::format_to(std::back_inserter(out), "{},{},{}\r\n", date, row.input_tokens,
                   row.output_tokens);
  }
  return out;
}

std::string burstgpt_text(const RequestTrace& trace) {
  std::string out =
      "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log "
      "Type\n";
  for (const Request& row : trace.rows) {
    const std::string& label = trace.labels.at(row.label);
    const auto slash = label.find(" / ");
    const std::string model = label.substr(0, slash);
    std::string kind = slash == std::string::npos ? "" : label.substr(slash + 3);
    if (kind.empty()) kind = row.session >= 0 ? "Conversation" : "API";
    const std::uint32_t output = row.failed ? 0 : row.output_tokens;
    fmt::format_to(
        std::back_inserter(out), "{},{},{},{},{},{},{},{} log\n", format_seconds(row.time_ns),
        row.session < 0 ? "" : csv_cell(trace.sessions.at(static_cast<std::size_t>(row.session))),
        row.elapsed_s >= 0 ? fmt::format("{}", row.elapsed_s) : "", csv_cell(model),
        row.input_tokens, output, std::uint64_t{row.input_tokens} + output, kind);
  }
  return out;
}

std::string mooncake_text(const RequestTrace& trace) {
  std::string out;
  for (const Request& row : trace.rows) {
    fmt::format_to(std::back_inserter(out),
                   "{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": {}, "
                   "\"hash_ids\": [",
                   row.time_ns / 1'000'000, row.input_tokens, row.output_tokens);
    bool first = true;
    for (const std::uint64_t id : trace.blocks(row)) {
      fmt::format_to(std::back_inserter(out), "{}{}", first ? "" : ", ", id);
      first = false;
    }
    out += "]}\n";
  }
  return out;
}

std::string vidur_text(const RequestTrace& trace) {
  std::string out = "arrived_at,num_prefill_tokens,num_decode_tokens\n";
  for (const Request& row : trace.rows) {
    fmt::format_to(std::back_inserter(out), "{},{},{}\n", format_seconds(row.time_ns),
                   row.input_tokens, row.output_tokens);
  }
  return out;
}

struct Target {
  std::string_view format;
  std::string (*text)(const RequestTrace&);
  std::int64_t unit_ns;  // of its times
  bool keeps_sessions, keeps_labels, keeps_blocks, keeps_failures;
};
constexpr Target kTargets[] = {
    {"weft", weft_text, 1, true, true, true, true},
    {"azure", azure_text, 100, false, false, false, false},
    {"burstgpt", burstgpt_text, 1, true, true, false, true},
    {"mooncake", mooncake_text, 1'000'000, false, false, true, false},
    {"vidur", vidur_text, 1, false, false, false, false},
};

}  // namespace

Status write_requests(const RequestTrace& trace, std::string_view format,
                      const std::filesystem::path& path, std::vector<std::string>* lost) {
  const auto target = std::ranges::find(kTargets, format, &Target::format);
  if (target == std::end(kTargets)) {
    return fail(ErrorCode::kInvalidArgument,
                "there is no way to write the format '{}'; writable: weft, azure, burstgpt, "
                "mooncake, vidur",
                format);
  }
  if (format == "mooncake" && trace.block_tokens != 0 && trace.block_tokens != 512) {
    return fail(ErrorCode::kInvalidArgument,
                "Mooncake's blocks have 512 tokens, this trace's {}; write the format 'weft'",
                trace.block_tokens);
  }
  if (lost != nullptr) {
    std::int64_t sessions = 0, labels = 0, blocks = 0, failures = 0, fine = 0;
    for (const Request& row : trace.rows) {
      sessions += row.session >= 0;
      labels += !trace.labels.at(row.label).empty();
      blocks += row.block_count > 0;
      failures += row.failed;
      fine += row.time_ns % target->unit_ns != 0;
    }
    const auto say = [&](std::int64_t rows, bool kept, std::string_view what) {
      if (rows > 0 && !kept) lost->push_back(fmt::format("{} of {} rows", what, rows));
    };
    say(sessions, target->keeps_sessions, "sessions");
    say(labels, target->keeps_labels, "labels");
    say(blocks, target->keeps_blocks, "prompt blocks");
    say(failures, target->keeps_failures, "failures");
    say(fine, false, fmt::format("times finer than {} ns", target->unit_ns));
  }
  return write_file_atomic(path, target->text(trace));
}

}  // namespace weft::workload
