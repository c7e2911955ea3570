#include "weft/workload/row_tally.h"

#include <algorithm>

namespace weft::workload {
namespace {

void count(std::vector<RowReason>& reasons, std::string_view name, std::int64_t line) {
  auto found = std::ranges::find(reasons, name, &RowReason::name);
  if (found == reasons.end()) {
    reasons.push_back({std::string(name), 0, {}});
    found = reasons.end() - 1;
  }
  ++found->rows;
  if (found->lines.size() < RowReason::kExamples) found->lines.push_back(line);
}

Json reasons_json(const std::vector<RowReason>& reasons) {
  Json out = Json::array();
  for (const RowReason& reason : reasons) {
    out.push_back({{"reason", reason.name}, {"rows", reason.rows}, {"first_lines", reason.lines}});
  }
  return out;
}

std::string reasons_text(const std::vector<RowReason>& reasons, std::string_view what) {
  std::string out;
  for (const RowReason& reason : reasons) {
    out += fmt::format("  {} {}: {} (line", what, reason.rows, reason.name);
    if (reason.lines.size() > 1) out += 's';
    for (std::size_t i = 0; i < reason.lines.size(); ++i) {
      out += fmt::format("{}{}", i == 0 ? " " : ", ", reason.lines[i]);
    }
    if (static_cast<std::size_t>(reason.rows) > reason.lines.size()) out += ", ...";
    out += ")\n";
  }
  return out;
}

}  // namespace

void RowTally::drop(std::string_view reason, std::int64_t line) {
  ++rows_;
  ++dropped_;
  count(drops_, reason, line);
}

void RowTally::drop_kept(std::string_view reason, std::int64_t line) {
  WEFT_CHECK(kept_ > 0, "no row to take back");
  --kept_;
  ++dropped_;
  count(drops_, reason, line);
}

void RowTally::repair(std::string_view reason, std::int64_t line) { count(repairs_, reason, line); }

void RowTally::note(std::string text) {
  if (std::ranges::find(notes_, text) == notes_.end()) notes_.push_back(std::move(text));
}

void RowTally::finish() const {
  std::int64_t sum = 0;
  for (const RowReason& reason : drops_) sum += reason.rows;
  WEFT_CHECK(rows_ == kept_ + dropped_ && sum == dropped_, "{} rows, {} kept, {} dropped", rows_,
             kept_, dropped_);
}

Json RowTally::json() const {
  return {{"rows", rows_},
          {"kept", kept_},
          {"dropped", dropped_},
          {"drops", reasons_json(drops_)},
          {"repairs", reasons_json(repairs_)},
          {"notes", notes_}};
}

std::string RowTally::text() const {
  std::string out = fmt::format("{} rows: {} kept, {} dropped\n", rows_, kept_, dropped_);
  out += reasons_text(drops_, "dropped");
  out += reasons_text(repairs_, "repaired");
  for (const auto& note : notes_) out += fmt::format("  note: {}\n", note);
  return out;
}

}  // namespace weft::workload
