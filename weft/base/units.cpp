#include "weft/base/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>

namespace weft {
namespace {

// Three significant digits without an exponent: 1.23, 12.3, 123, 1230.
std::string three_digits(double value) {
  const double magnitude = std::abs(value);
  if (magnitude >= 99.95) return fmt::format("{:.0f}", value);
  if (magnitude >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

std::string scaled(double value, std::string_view unit) {
  constexpr std::array<std::string_view, 6> kPrefixes = {"", "k", "M", "G", "T", "P"};
  std::size_t prefix = 0;
  while (std::abs(value) >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  const bool whole = prefix == 0 && value == std::floor(value);
  const std::string suffix = fmt::format("{}{}", kPrefixes[prefix], unit);
  const std::string number = whole ? fmt::format("{:.0f}", value) : three_digits(value);
  return suffix.empty() ? number : number + " " + suffix;
}

}  // namespace

std::string human_bytes(double bytes) { return scaled(bytes, "B"); }
std::string human_count(double count) { return scaled(count, ""); }

std::string human_duration(double seconds) {
  if (!(seconds >= 0)) return "?";
  if (seconds < 0.9995e-3) return three_digits(seconds * 1e6) + " us";
  if (seconds < 0.9995) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const double rounded = std::round(seconds);
  if (rounded < 3600) {
    return fmt::format("{:.0f} min {:02.0f} s", std::floor(rounded / 60), std::fmod(rounded, 60));
  }
  const double minutes = std::round(seconds / 60);
  return fmt::format("{:.0f} h {:02.0f} min", std::floor(minutes / 60), std::fmod(minutes, 60));
}

}  // namespace weft
