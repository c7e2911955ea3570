// CSV request traces: BurstGPT 1 to 3, Azure 2023 to 2025, Vidur, and Weft's own.
#include <algorithm>
#include <array>
#include <charconv>

#include "weft/base/json.h"
#include "weft/workload/field_text.h"
#include "weft/workload/request_parser.h"

namespace weft::workload {
namespace {

enum class TimeForm { kNone, kSeconds, kDate };

// The columns of one CSV format, by name; "" where it has none. Columns are found in
// any order: BurstGPT 3 inserted two in the middle.
struct CsvLayout {
  std::string_view format;
  TimeForm time_form;
  std::string_view time, input, output;
  std::string_view total = "", model = "", kind = "", session = "", elapsed = "", failed = "",
                   label = "", blocks = "";
  bool zero_output_failed = false;  // an answer of no tokens is a failure there
};

constexpr CsvLayout kLayouts[] = {
    {.format = "burstgpt",
     .time_form = TimeForm::kSeconds,
     .time = "Timestamp",
     .input = "Request tokens",
     .output = "Response tokens",
     .total = "Total tokens",
     .model = "Model",
     .kind = "Log Type",
     .session = "Session ID",
     .elapsed = "Elapsed time",
     .zero_output_failed = true},
    {.format = "azure",
     .time_form = TimeForm::kDate,
     .time = "TIMESTAMP",
     .input = "ContextTokens",
     .output = "GeneratedTokens"},
    {.format = "vidur",
     .time_form = TimeForm::kSeconds,
     .time = "arrived_at",
     .input = "num_prefill_tokens",
     .output = "num_decode_tokens"},
    {.format = "vidur-lengths",
     .time_form = TimeForm::kNone,
     .time = "",
     .input = "num_prefill_tokens",
     .output = "num_decode_tokens"},
    {.format = "weft",
     .time_form = TimeForm::kSeconds,
     .time = "time_s",
     .input = "input_tokens",
     .output = "output_tokens",
     .session = "session",
     .elapsed = "elapsed_s",
     .failed = "failed",
     .label = "label",
     .blocks = "blocks"},
};

// Columns that are known to carry nothing Weft reads.
constexpr std::array<std::string_view, 3> kSilent = {"num_total_tokens", "pd_ratio", "row"};

std::string_view describe(NumberProblem problem) {
  switch (problem) {
    case NumberProblem::kEmpty:
      return "empty cell";
    case NumberProblem::kNegative:
      return "negative number";
    case NumberProblem::kTooLarge:
      return "number too large";
    default:
      return "not a number";
  }
}

std::string_view without_suffix(std::string_view text, std::string_view suffix) {
  if (text.ends_with(suffix)) text.remove_suffix(suffix.size());
  return text;
}

class CsvParser final : public RequestParser {
 public:
  CsvParser(const CsvLayout& layout, std::string_view file) : layout_(layout), file_(file) {}

  Result<bool> begin(std::string_view line, RequestTrace& facts, RowTally& tally) override {
    if (layout_.format == "weft" && line.starts_with('#')) {
      WEFT_TRY(read_facts(line, facts));
      magic_seen_ = true;
      return true;  // the column names are on the next line
    }
    facts.has_times = layout_.time_form != TimeForm::kNone;
    return read_columns(line, tally);
  }

  RowProblem parse(std::string_view line, ParsedRequest& row) override {
    if (trimmed(line).empty()) return {.blank = true};
    if (magic_seen_) {
      magic_seen_ = false;
      RowTally unused;
      const auto header = read_columns(line, unused);
      if (!header) return {.reason = header.error().message, .fatal = true};
      return {.blank = true};
    }
    if (!split_csv(line, cells_, scratch_)) return {.reason = "a quote is not closed"};
    if (cells_.size() != columns_) {
      return {.reason = fmt::format("{} cells instead of {}", cells_.size(), columns_)};
    }
    if (auto problem = parse_time(row); problem.bad()) return problem;
    if (auto problem = parse_tokens(row); problem.bad()) return problem;
    row.failed = layout_.zero_output_failed && row.output_tokens == 0;
    if (failed_) row.failed = trimmed(cells_[*failed_]) == "1";
    row.session = session_ ? trimmed(cells_[*session_]) : std::string_view();
    row.elapsed_s = -1;
    if (elapsed_ && !trimmed(cells_[*elapsed_]).empty()) {
      double seconds = 0;
      if (!parse_double(cells_[*elapsed_], seconds)) {
        return {.reason = fmt::format("not a number in '{}'", layout_.elapsed)};
      }
      row.elapsed_s = static_cast<float>(seconds);
    }
    read_label(row);
    return read_blocks(row);
  }

 private:
  // "#weft-requests 1 {...}"
  Status read_facts(std::string_view line, RequestTrace& facts) {
    constexpr std::string_view kMagic = "#weft-requests 1 ";
    if (!line.starts_with(kMagic)) {
      return fail(ErrorCode::kUnsupported,
                  "{}: line 1 is \"{}\", but this Weft reads version 1 (\"{}{{...}}\")", file_,
                  line.substr(0, 40), kMagic);
    }
    WEFT_ASSIGN(const Json json, parse_json(line.substr(kMagic.size()), file_ + ": line 1"));
    WEFT_ASSIGN(const auto block, json_field_or<std::int64_t>(json, "block_tokens", 0));
    if (block < 0 || block > (1 << 20)) {
      return fail(ErrorCode::kOutOfRange, "{}: line 1: block_tokens is {}; at most {}", file_,
                  block, 1 << 20);
    }
    facts.block_tokens = static_cast<std::uint32_t>(block);
    WEFT_ASSIGN(facts.has_times, json_field_or<bool>(json, "times", true));
    WEFT_ASSIGN(facts.parameters, json_field_or<std::string>(json, "parameters", ""));
    WEFT_ASSIGN(const auto zero, json_field_or<std::string>(json, "zero", ""));
    std::int64_t unix_ns = 0;
    if (!zero.empty()) {
      if (!parse_date_time(zero, unix_ns)) {
        return fail(ErrorCode::kInvalidArgument, "{}: line 1: \"zero\" is no date: {}", file_,
                    zero);
      }
      facts.zero_unix_ns = unix_ns;
    }
    return {};
  }

  Result<bool> read_columns(std::string_view line, RowTally& tally) {
    const CsvHeader header(line);
    columns_ = header.names().size();
    const auto need = [&](std::string_view name) { return header.need(std::array{name}, file_); };
    if (layout_.time_form != TimeForm::kNone) {
      WEFT_ASSIGN(time_, need(layout_.time));
    }
    WEFT_ASSIGN(input_, need(layout_.input));
    WEFT_ASSIGN(output_, need(layout_.output));
    const auto find = [&](std::string_view name) {
      return name.empty() ? std::nullopt : header.find(name);
    };
    total_ = find(layout_.total);
    model_ = find(layout_.model);
    kind_ = find(layout_.kind);
    session_ = find(layout_.session);
    elapsed_ = find(layout_.elapsed);
    failed_ = find(layout_.failed);
    label_ = find(layout_.label);
    blocks_ = find(layout_.blocks);
    const std::array known = {layout_.time,   layout_.input, layout_.output,  layout_.total,
                              layout_.model,  layout_.kind,  layout_.session, layout_.elapsed,
                              layout_.failed, layout_.label, layout_.blocks};
    for (const std::string& name : header.names()) {
      if (std::ranges::find(known, name) == known.end() &&
          std::ranges::find(kSilent, name) == kSilent.end()) {
        tally.note(fmt::format("column '{}' is not used", name));
      }
    }
    return true;
  }

  RowProblem parse_time(ParsedRequest& row) const {
    row.time_ns = 0;
    if (layout_.time_form == TimeForm::kDate) {
      if (parse_date_time(cells_[time_], row.time_ns)) return {};
      return {.reason = fmt::format("not a date in '{}'", layout_.time)};
    }
    if (layout_.time_form == TimeForm::kSeconds) {
      const auto problem = parse_decimal_time(cells_[time_], 1, row.time_ns);
      if (problem != NumberProblem::kNone) {
        return {.reason = fmt::format("{} in '{}'", describe(problem), layout_.time)};
      }
    }
    return {};
  }

  RowProblem parse_tokens(ParsedRequest& row) const {
    const auto count = [&](std::size_t column, std::string_view name,
                           std::uint32_t& value) -> RowProblem {
      const auto problem = parse_count(cells_[column], value);
      if (problem == NumberProblem::kNone) return {};
      return {.reason = fmt::format("{} in '{}'", describe(problem), name)};
    };
    if (auto bad = count(input_, layout_.input, row.input_tokens); bad.bad()) return bad;
    if (auto bad = count(output_, layout_.output, row.output_tokens); bad.bad()) return bad;
    if (total_) {
      std::uint32_t total = 0;
      if (auto bad = count(*total_, layout_.total, total); bad.bad()) return bad;
      if (total != std::uint64_t{row.input_tokens} + row.output_tokens) {
        return {.reason = fmt::format("'{}' is not the sum of '{}' and '{}'", layout_.total,
                                      layout_.input, layout_.output)};
      }
    }
    return {};
  }

  void read_label(ParsedRequest& row) {
    row.label = label_ ? trimmed(cells_[*label_]) : std::string_view();
    if (!model_ && !kind_) return;
    label_text_.clear();
    if (model_) label_text_ += trimmed(cells_[*model_]);
    if (kind_) {
      if (model_) label_text_ += " / ";
      label_text_ += without_suffix(trimmed(cells_[*kind_]), " log");
    }
    row.label = label_text_;
  }

  RowProblem read_blocks(ParsedRequest& row) const {
    row.blocks.clear();
    if (!blocks_) return {};
    std::string_view rest = trimmed(cells_[*blocks_]);
    while (!rest.empty()) {
      std::uint64_t id = 0;
      const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), id);
      if (error != std::errc())
        return {.reason = fmt::format("not a number in '{}'", layout_.blocks)};
      row.blocks.push_back(id);
      rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
      rest = trimmed(rest);
    }
    return {};
  }

  const CsvLayout& layout_;
  std::string file_;
  bool magic_seen_ = false;
  std::size_t columns_ = 0, time_ = 0, input_ = 0, output_ = 0;
  std::optional<std::size_t> total_, model_, kind_, session_, elapsed_, failed_, label_, blocks_;
  std::vector<std::string_view> cells_;
  std::string scratch_, label_text_;
};

}  // namespace

std::unique_ptr<RequestParser> make_csv_parser(std::string_view format, std::string_view file) {
  for (const CsvLayout& layout : kLayouts) {
    if (layout.format == format) return std::make_unique<CsvParser>(layout, file);
  }
  return nullptr;
}

}  // namespace weft::workload
