// Fields of text rows: CSV cells, whole numbers, times. Exact where the text is:
// times become whole nanoseconds without passing through a double.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"

namespace weft::workload {

// Splits one CSV line at commas (RFC 4180: cells in quotes, "" inside them is one
// quote). Views point into `line`, or into `scratch` for cells with doubled quotes.
// False when a quote is not closed on this line.
bool split_csv(std::string_view line, std::vector<std::string_view>& cells, std::string& scratch);
// A cell as CSV writes it: in quotes where it needs them.
std::string csv_cell(std::string_view text);

// Column positions by name, from a header line.
class CsvHeader {
 public:
  CsvHeader() = default;
  explicit CsvHeader(std::string_view line);

  const std::vector<std::string>& names() const { return names_; }
  std::optional<std::size_t> find(std::string_view name) const;
  // The position of the first of `names` that is there; else an error that lists
  // the columns of the file.
  Result<std::size_t> need(std::span<const std::string_view> names, std::string_view file) const;

 private:
  std::vector<std::string> names_;
};

// Blanks and tabs at both ends removed.
std::string_view trimmed(std::string_view text);

enum class NumberProblem { kNone, kEmpty, kNotNumber, kNegative, kTooLarge };

// A count from 0 to 2^32 - 2; "12", "12.0" and "1.2e1" are 12, "1.5" is no count.
NumberProblem parse_count(std::string_view text, std::uint32_t& value);
// Decimal seconds ("12", "0.25", "1e3", "-0.5") as nanoseconds, rounded to the
// nearest beyond nine decimals. `units_per_second` 1000 reads milliseconds.
NumberProblem parse_decimal_time(std::string_view text, std::int64_t units_per_second,
                                 std::int64_t& ns);
// "2023-11-16 18:15:46.6805900", with 'T' for the blank, any number of decimals, and an
// optional zone ("Z", "+00:00") as nanoseconds since 1970 (UTC where no zone is given).
bool parse_date_time(std::string_view text, std::int64_t& unix_ns);
// The reverse, with nine decimals and a blank between date and time.
std::string format_date_time(std::int64_t unix_ns);
// Seconds with nine decimals: "12.250000000".
std::string format_seconds(std::int64_t ns);
// Any finite double.
bool parse_double(std::string_view text, double& value);

}  // namespace weft::workload
