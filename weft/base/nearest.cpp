#include "weft/base/nearest.h"

#include <algorithm>
#include <vector>

namespace weft {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // The last three rows of the usual table.
  std::vector<std::size_t> above2(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], above2[j - 2] + 1);
      }
    }
    std::swap(above2, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::string nearest_name(std::string_view name, std::span<const std::string> names) {
  const auto last_part = [](std::string_view dotted) {
    return dotted.substr(dotted.rfind('.') + 1);  // npos + 1 is 0: the whole
  };
  const std::string* nearest = nullptr;
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : names) {
    std::size_t distance = edit_distance(name, candidate);
    if (last_part(name) == last_part(candidate)) distance = std::min<std::size_t>(distance, 2);
    if (distance < least) {
      least = distance;
      nearest = &candidate;
    }
  }
  return nearest == nullptr ? std::string() : *nearest;
}

}  // namespace weft
