#include "weft/rl/number_text.h"

#include <cstdlib>

namespace weft::rl {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

// The number that starts at text[i], a digit; moves i past it.
std::string read_number(std::string_view text, std::size_t& i) {
  std::string number;
  const std::size_t begin = i;
  if (begin > 0 && text[begin - 1] == '-' && (begin == 1 || !digit(text[begin - 2]))) number = "-";
  bool point = false;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    const bool digit_next = i + 1 < text.size() && digit(text[i + 1]);
    if (digit(c)) {
      number += c;
    } else if (c == ',' && digit_next && !point) {
      continue;
    } else if (c == '.' && digit_next && !point) {
      point = true;
      number += c;
    } else {
      break;
    }
  }
  return number;
}

template <class Keep>
std::optional<std::string> scan(std::string_view text, Keep keep_going) {
  std::optional<std::string> found;
  for (std::size_t i = 0; i < text.size();) {
    if (!digit(text[i])) {
      ++i;
      continue;
    }
    found = read_number(text, i);
    if (!keep_going()) break;
  }
  return found;
}

}  // namespace

std::optional<std::string> last_number(std::string_view text) {
  return scan(text, [] { return true; });
}

std::optional<std::string> number_after(std::string_view text, std::string_view marker) {
  const std::size_t at = text.rfind(marker);
  if (at == std::string_view::npos) return std::nullopt;
  return scan(text.substr(at + marker.size()), [] { return false; });
}

bool same_number(std::string_view a, std::string_view b) {
  const std::string x(a), y(b);
  char *x_end = nullptr, *y_end = nullptr;
  const double u = std::strtod(x.c_str(), &x_end), v = std::strtod(y.c_str(), &y_end);
  return !x.empty() && !y.empty() && *x_end == '\0' && *y_end == '\0' && u == v;
}

}  // namespace weft::rl
