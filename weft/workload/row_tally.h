// What became of every row of a trace: kept, repaired or dropped, by named reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/json.h"

namespace weft::workload {

// One reason with its count and the places where it was met first.
struct RowReason {
  static constexpr std::size_t kExamples = 5;
  std::string name;  // "time goes backwards", "negative count in 'Request tokens'"
  std::int64_t rows = 0;
  std::vector<std::int64_t> lines;  // the first few, from 1
};

// rows == kept + dropped always (checked by `finish`). Repaired rows are kept;
// notes are not about single rows (an unknown column, an absurd rate).
class RowTally {
 public:
  void keep() { ++rows_, ++kept_; }
  void drop(std::string_view reason, std::int64_t line);
  // Takes back one row that `keep` counted and drops it.
  void drop_kept(std::string_view reason, std::int64_t line);
  void repair(std::string_view reason, std::int64_t line);
  void note(std::string text);
  void finish() const;

  std::int64_t rows() const { return rows_; }
  std::int64_t kept() const { return kept_; }
  std::int64_t dropped() const { return dropped_; }
  const std::vector<RowReason>& drops() const { return drops_; }
  const std::vector<RowReason>& repairs() const { return repairs_; }
  const std::vector<std::string>& notes() const { return notes_; }

  Json json() const;
  // "12,031 rows: 12,030 kept, 1 dropped" and a line for each reason and note.
  std::string text() const;

 private:
  std::int64_t rows_ = 0, kept_ = 0, dropped_ = 0;
  std::vector<RowReason> drops_, repairs_;
  std::vector<std::string> notes_;
};

}  // namespace weft::workload
