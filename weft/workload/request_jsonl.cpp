// JSON request traces, one object a line: Mooncake, Qwen-Bailian, RAGPulse, TraceLab, and
// the rows that conversations are turned into.
#include <simdjson.h>

#include <algorithm>

#include "weft/workload/field_text.h"
#include "weft/workload/request_parser.h"

namespace weft::workload {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

// A count that is written as a number or as a string of digits (RAGPulse).
RowProblem read_count(const object& row, const char* key, std::uint32_t& value) {
  element field;
  if (row[key].get(field) != simdjson::SUCCESS) return {.reason = fmt::format("no '{}'", key)};
  std::int64_t whole = 0;
  double number = 0;
  std::string_view text;
  NumberProblem problem = NumberProblem::kNotNumber;
  if (field.get(whole) == simdjson::SUCCESS) {
    problem = whole < 0             ? NumberProblem::kNegative
              : whole >= 0xFFFFFFFF ? NumberProblem::kTooLarge
                                    : NumberProblem::kNone;
    value = static_cast<std::uint32_t>(whole);
  } else if (field.get(number) == simdjson::SUCCESS) {
    problem = parse_count(fmt::format("{}", number), value);
  } else if (field.get(text) == simdjson::SUCCESS) {
    problem = parse_count(text, value);
  }
  if (problem == NumberProblem::kNone) return {};
  return {.reason = fmt::format("{} in '{}'",
                                problem == NumberProblem::kNegative   ? "negative number"
                                : problem == NumberProblem::kTooLarge ? "number too large"
                                                                      : "not a count",
                                key)};
}

RowProblem read_time(const object& row, const char* key, std::int64_t units, std::int64_t& ns) {
  element field;
  if (row[key].get(field) != simdjson::SUCCESS) return {.reason = fmt::format("no '{}'", key)};
  std::int64_t whole = 0;
  double number = 0;
  std::string_view text;
  std::string digits;
  if (field.get(whole) == simdjson::SUCCESS) {
    digits = std::to_string(whole);
    text = digits;
  } else if (field.get(number) == simdjson::SUCCESS) {
    digits = fmt::format("{}", number);  // the shortest text that reads back as the same double
    text = digits;
  } else if (field.get(text) != simdjson::SUCCESS) {
    return {.reason = fmt::format("not a time in '{}'", key)};
  }
  if (parse_decimal_time(text, units, ns) == NumberProblem::kNone) return {};
  return {.reason = fmt::format("not a time in '{}'", key)};
}

// An id that is a string or a whole number, as text.
std::string_view read_id(const object& row, const char* key, std::string& scratch) {
  element field;
  std::string_view text;
  std::int64_t whole = 0;
  if (row[key].get(field) != simdjson::SUCCESS) return {};
  if (field.get(text) == simdjson::SUCCESS) return text;
  if (field.get(whole) != simdjson::SUCCESS) return {};
  scratch = std::to_string(whole);
  return scratch;
}

// Appends the ids of an array, or of all arrays of an object (RAGPulse's typed ids).
bool read_blocks(const element& field, std::vector<std::uint64_t>& blocks) {
  simdjson::dom::array ids;
  object typed;
  if (field.get(ids) == simdjson::SUCCESS) {
    for (const element id : ids) {
      std::uint64_t value = 0;
      if (id.get(value) != simdjson::SUCCESS) return false;
      blocks.push_back(value);
    }
    return true;
  }
  if (field.get(typed) != simdjson::SUCCESS) return false;
  for (const auto& [key, value] : typed) {
    if (!read_blocks(value, blocks)) return false;
  }
  return true;
}

class JsonlParser final : public RequestParser {
 public:
  JsonlParser(std::string_view format, const RequestReadOptions& options)
      : format_(format), options_(options) {}

  Result<bool> begin(std::string_view, RequestTrace& facts, RowTally& tally) override {
    if (format_ == "mooncake") facts.block_tokens = 512;
    if (format_ == "bailian") facts.block_tokens = 16;
    if (options_.block_tokens != 0) facts.block_tokens = options_.block_tokens;
    if (format_ == "sharegpt") {
      facts.has_times = false;
      if (!options_.count_tokens) {
        tally.note(
            "tokens are estimated as bytes / 4; give a tokenizer (--tokenizer) for exact ones");
      }
    }
    return false;
  }

  RowProblem parse(std::string_view line, ParsedRequest& row) override {
    if (trimmed(line).empty()) return {.blank = true};
    object json;
    if (parser_.parse(line.data(), line.size()).get(json) != simdjson::SUCCESS) {
      return {.reason = "not a JSON object"};
    }
    row.blocks.clear();
    row.session = row.label = row.chat = row.parent_chat = {};
    row.failed = false;
    row.elapsed_s = -1;
    if (format_ == "tracelab") return parse_tracelab(json, row);
    if (std::string_view problem; json["problem"].get(problem) == simdjson::SUCCESS) {
      return {.reason = std::string(problem)};
    }
    const std::int64_t units = format_ == "mooncake" ? 1000 : 1;
    if (auto bad = read_time(json, "timestamp", units, row.time_ns); bad.bad()) return bad;
    if (auto bad = read_count(json, "input_length", row.input_tokens); bad.bad()) return bad;
    if (auto bad = read_count(json, "output_length", row.output_tokens); bad.bad()) return bad;
    element ids;
    if (json["hash_ids"].get(ids) == simdjson::SUCCESS && !read_blocks(ids, row.blocks)) {
      return {.reason = "not a list of block ids in 'hash_ids'"};
    }
    row.session = read_id(json, "session_id", session_text_);
    if (format_ == "bailian") {
      row.chat = read_id(json, "chat_id", chat_text_);
      row.parent_chat = read_id(json, "parent_chat_id", parent_text_);
      row.label = read_id(json, "type", session_text_);
    }
    return {};
  }

 private:
  // A round of an agent: it arrives when its first input event does.
  RowProblem parse_tracelab(const object& json, ParsedRequest& row) {
    simdjson::dom::array events;
    std::string_view stamp;
    if (json["timing_events"].get(events) != simdjson::SUCCESS || events.size() == 0) {
      return {.reason = "no 'timing_events'"};
    }
    if (events.at(0)["timestamp"].get(stamp) != simdjson::SUCCESS ||
        !parse_date_time(stamp, row.time_ns)) {
      return {.reason = "not a date in 'timing_events[0].timestamp'"};
    }
    if (auto bad = read_count(json, "input_tokens_total", row.input_tokens); bad.bad()) return bad;
    if (auto bad = read_count(json, "output_tokens", row.output_tokens); bad.bad()) return bad;
    row.session = read_id(json, "session_id", session_text_);
    row.label = read_id(json, "model", chat_text_);
    return {};
  }

  std::string format_;
  RequestReadOptions options_;
  simdjson::dom::parser parser_;
  std::string session_text_, chat_text_, parent_text_;
};

}  // namespace

std::unique_ptr<RequestParser> make_jsonl_parser(std::string_view format, std::string_view,
                                                 const RequestReadOptions& options) {
  if (format == "mooncake" || format == "bailian" || format == "ragpulse" || format == "tracelab" ||
      format == "sharegpt") {
    return std::make_unique<JsonlParser>(format, options);
  }
  return nullptr;
}

}  // namespace weft::workload
