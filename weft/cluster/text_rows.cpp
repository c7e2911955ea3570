#include "weft/cluster/text_rows.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace weft::cluster {
namespace {

void split(std::string_view line, std::vector<std::string_view>& cells) {
  cells.clear();
  for (;;) {
    const auto comma = line.find(',');
    cells.push_back(without_blanks(line.substr(0, comma)));
    if (comma == std::string_view::npos) return;
    line.remove_prefix(comma + 1);
  }
}

}  // namespace

std::unexpected<Error> at_line(std::string_view file, int line, std::string_view sentence) {
  return fail(ErrorCode::kInvalidArgument, "{}:{}: {}", file, line, sentence);
}

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const auto begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

Status for_each_row(std::string_view text, std::string_view file,
                    std::span<const std::string_view> columns, const CsvRow& row) {
  std::vector<std::string_view> cells, picked(columns.size());
  std::vector<std::size_t> position(columns.size());
  std::size_t width = 0;
  for (int number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
    if (without_blanks(line).empty()) continue;
    if (line.find('\0') != std::string_view::npos) return at_line(file, number, "a zero byte");
    split(line, cells);
    if (width == 0) {
      width = cells.size();
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const auto found = std::find(cells.begin(), cells.end(), columns[i]);
        if (found == cells.end()) {
          return at_line(file, number, fmt::format("no column \"{}\" in the header", columns[i]));
        }
        position[i] = static_cast<std::size_t>(found - cells.begin());
      }
      continue;
    }
    if (cells.size() != width) {
      return at_line(file, number,
                     fmt::format("{} cells where the header has {}", cells.size(), width));
    }
    for (std::size_t i = 0; i < columns.size(); ++i) picked[i] = cells[position[i]];
    WEFT_TRY(row(picked, number));
  }
  if (width == 0) return at_line(file, 1, "the file is empty; a header line was expected");
  return {};
}

Result<std::int64_t> whole_number(std::string_view cell, std::int64_t low, std::int64_t high,
                                  std::string_view file, int line, std::string_view column) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc{} || end != cell.data() + cell.size() || value < low || value > high) {
    return at_line(file, line,
                   fmt::format("{}: expected a whole number from {} to {}, got \"{}\"", column, low,
                               high, cell));
  }
  return value;
}

Result<double> real_number(std::string_view cell, double low, double high, std::string_view file,
                           int line, std::string_view column) {
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc{} || end != cell.data() + cell.size() ||
      !(value >= low && value <= high)) {
    return at_line(
        file, line,
        fmt::format("{}: expected a number from {} to {}, got \"{}\"", column, low, high, cell));
  }
  return value;
}

}  // namespace weft::cluster
