// Lines and cells of small text tables with their numbers, for inventory readers.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"

namespace weft::cluster {

// The error of one place: "FILE:LINE: sentence".
std::unexpected<Error> at_line(std::string_view file, int line, std::string_view sentence);

std::string_view without_blanks(std::string_view text);

// A CSV file (no quoted cells: none of the inventories has any) whose header holds
// `columns`, in any order; calls row(cells in the order of `columns`, line). Blank lines
// are skipped; a row with another number of cells than the header is an error.
using CsvRow = std::function<Status(std::span<const std::string_view> cells, int line)>;
Status for_each_row(std::string_view text, std::string_view file,
                    std::span<const std::string_view> columns, const CsvRow& row);

// A whole number from `low` to `high`; the error names the column.
Result<std::int64_t> whole_number(std::string_view cell, std::int64_t low, std::int64_t high,
                                  std::string_view file, int line, std::string_view column);
Result<double> real_number(std::string_view cell, double low, double high, std::string_view file,
                           int line, std::string_view column);

}  // namespace weft::cluster
