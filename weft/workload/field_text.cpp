#include "weft/workload/field_text.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>

namespace weft::workload {
namespace {

constexpr std::int64_t kNsPerSecond = 1'000'000'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Digits at the front of `text`, at most `max`, removed from it; -1 if there are none.
int take_number(std::string_view& text, std::size_t min_digits, std::size_t max_digits) {
  std::size_t n = 0;
  int value = 0;
  while (n < text.size() && n < max_digits && is_digit(text[n]))
    value = 10 * value + text[n++] - '0';
  if (n < min_digits) return -1;
  text.remove_prefix(n);
  return value;
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

// ".6805900" as nanoseconds; rounds to nearest beyond nine digits.
std::int64_t take_fraction_ns(std::string_view& text) {
  std::int64_t ns = 0, scale = kNsPerSecond;
  bool round_up = false;
  std::size_t n = 0;
  while (n < text.size() && is_digit(text[n])) {
    if (n < 9) {
      scale /= 10;
      ns += (text[n] - '0') * scale;
    } else if (n == 9) {
      round_up = text[n] >= '5';
    }
    ++n;
  }
  text.remove_prefix(n);
  return ns + (round_up ? 1 : 0);
}

}  // namespace

bool split_csv(std::string_view line, std::vector<std::string_view>& cells, std::string& scratch) {
  cells.clear();
  scratch.clear();
  if (line.find('"') == std::string_view::npos) {
    std::size_t begin = 0;
    for (;;) {
      const std::size_t comma = line.find(',', begin);
      cells.push_back(line.substr(begin, comma - begin));
      if (comma == std::string_view::npos) return true;
      begin = comma + 1;
    }
  }
  scratch.reserve(line.size());  // never grows, so that views into it stay valid
  std::size_t at = 0;
  for (;;) {
    if (at < line.size() && line[at] == '"') {
      const std::size_t begin = scratch.size();
      for (++at;; ++at) {
        if (at >= line.size()) return false;
        if (line[at] != '"') {
          scratch.push_back(line[at]);
        } else if (at + 1 < line.size() && line[at + 1] == '"') {
          scratch.push_back('"');
          ++at;
        } else {
          break;
        }
      }
      ++at;
      cells.push_back(std::string_view(scratch).substr(begin));
      if (at < line.size() && line[at] != ',') return false;
    } else {
      const std::size_t comma = line.find(',', at);
      cells.push_back(line.substr(at, comma - at));
      at = comma == std::string_view::npos ? line.size() : comma;
    }
    if (at >= line.size()) return true;
    ++at;
  }
}

std::string csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

CsvHeader::CsvHeader(std::string_view line) {
  std::vector<std::string_view> cells;
  std::string scratch;
  if (!split_csv(line, cells, scratch)) return;
  for (const auto cell : cells) names_.emplace_back(trimmed(cell));
}

std::optional<std::size_t> CsvHeader::find(std::string_view name) const {
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] == name) return i;
  }
  return std::nullopt;
}

Result<std::size_t> CsvHeader::need(std::span<const std::string_view> names,
                                    std::string_view file) const {
  for (const auto name : names) {
    if (const auto found = find(name)) return *found;
  }
  std::string there;
  for (const auto& name : names_) there += fmt::format("{}{}", there.empty() ? "" : ", ", name);
  return fail(ErrorCode::kInvalidArgument, "{}: there is no column '{}'; the header has: {}", file,
              names.empty() ? std::string_view() : names.front(), there);
}

bool parse_double(std::string_view text, double& value) {
  text = trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

NumberProblem parse_count(std::string_view text, std::uint32_t& value) {
  text = trimmed(text);
  if (text.empty()) return NumberProblem::kEmpty;
  std::uint64_t whole = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (error == std::errc() && end == text.data() + text.size()) {
    if (whole >= std::numeric_limits<std::uint32_t>::max()) return NumberProblem::kTooLarge;
    value = static_cast<std::uint32_t>(whole);
    return NumberProblem::kNone;
  }
  double number = 0;
  if (error == std::errc::result_out_of_range) return NumberProblem::kTooLarge;
  if (!parse_double(text, number)) return NumberProblem::kNotNumber;
  if (number < 0) return NumberProblem::kNegative;
  if (number != std::floor(number)) return NumberProblem::kNotNumber;
  if (number >= std::numeric_limits<std::uint32_t>::max()) return NumberProblem::kTooLarge;
  value = static_cast<std::uint32_t>(number);
  return NumberProblem::kNone;
}

NumberProblem parse_decimal_time(std::string_view text, std::int64_t units_per_second,
                                 std::int64_t& ns) {
  text = trimmed(text);
  if (text.empty()) return NumberProblem::kEmpty;
  std::string_view rest = text;
  const bool negative = take(rest, '-');
  std::uint64_t whole = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), whole);
  if (error == std::errc::result_out_of_range) return NumberProblem::kTooLarge;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  const bool digits = error == std::errc();
  if (digits && (rest.empty() || rest.front() == '.')) {
    std::int64_t fraction = 0;
    if (take(rest, '.')) fraction = take_fraction_ns(rest);
    if (rest.empty()) {
      // 290 years, where nanoseconds in 64 bits end.
      if (whole / static_cast<std::uint64_t>(units_per_second) > 9'000'000'000U) {
        return NumberProblem::kTooLarge;
      }
      const std::int64_t unit_ns = kNsPerSecond / units_per_second;
      ns = static_cast<std::int64_t>(whole) * unit_ns +
           (fraction + units_per_second / 2) / units_per_second;
      if (negative) ns = -ns;
      return NumberProblem::kNone;
    }
  }
  double value = 0;
  if (!parse_double(text, value)) return NumberProblem::kNotNumber;
  value *= static_cast<double>(kNsPerSecond) / static_cast<double>(units_per_second);
  if (std::abs(value) > 9e18) return NumberProblem::kTooLarge;
  ns = std::llround(value);
  return NumberProblem::kNone;
}

bool parse_date_time(std::string_view text, std::int64_t& unix_ns) {
  using namespace std::chrono;
  text = trimmed(text);
  const int y = take_number(text, 4, 4);
  if (y < 1678 || y > 2261 || !take(text, '-')) return false;  // what nanoseconds can hold
  const int month_number = take_number(text, 1, 2);
  if (month_number < 1 || !take(text, '-')) return false;
  const int day_number = take_number(text, 1, 2);
  const year_month_day date{year{y}, month{static_cast<unsigned>(month_number)},
                            day{static_cast<unsigned>(std::max(0, day_number))}};
  if (day_number < 1 || !date.ok() || !(take(text, ' ') || take(text, 'T'))) return false;
  const int hour = take_number(text, 1, 2);
  if (hour < 0 || hour > 23 || !take(text, ':')) return false;
  const int minute = take_number(text, 2, 2);
  if (minute < 0 || minute > 59) return false;
  int second = 0;
  std::int64_t fraction = 0;
  if (take(text, ':')) {
    second = take_number(text, 2, 2);
    if (second < 0 || second > 60) return false;
    if (take(text, '.')) fraction = take_fraction_ns(text);
  }
  std::int64_t zone_seconds = 0;
  if (!take(text, 'Z') && !text.empty()) {
    const int sign = text.front() == '+' ? 1 : text.front() == '-' ? -1 : 0;
    if (sign == 0) return false;
    text.remove_prefix(1);
    const int zone_hour = take_number(text, 2, 2);
    take(text, ':');
    const int zone_minute = text.empty() ? 0 : take_number(text, 2, 2);
    if (zone_hour < 0 || zone_minute < 0) return false;
    zone_seconds = sign * (zone_hour * 3600 + zone_minute * 60);
  }
  if (!text.empty()) return false;
  const std::int64_t days = sys_days(date).time_since_epoch().count();
  unix_ns =
      (days * 86400 + hour * 3600 + minute * 60 + second - zone_seconds) * kNsPerSecond + fraction;
  return true;
}

std::string format_date_time(std::int64_t unix_ns) {
  using namespace std::chrono;
  std::int64_t seconds_total = unix_ns / kNsPerSecond;
  std::int64_t fraction = unix_ns % kNsPerSecond;
  if (fraction < 0) {
    fraction += kNsPerSecond;
    --seconds_total;
  }
  const sys_seconds time{seconds{seconds_total}};
  const auto day_start = floor<days>(time);
  const year_month_day date{day_start};
  const hh_mm_ss clock{time - day_start};
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:09}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count(),
                     fraction);
}

std::string format_seconds(std::int64_t ns) {
  const bool negative = ns < 0;
  const std::uint64_t magnitude =
      negative ? 0 - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  return fmt::format("{}{}.{:09}", negative ? "-" : "", magnitude / kNsPerSecond,
                     magnitude % kNsPerSecond);
}

}  // namespace weft::workload
