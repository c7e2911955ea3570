#include "weft/serve/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace weft::serve {

std::string StopMatcher::push(std::string_view piece) {
  if (stopped_) return {};
  if (stops_.empty()) return std::string(piece);
  held_ += piece;
  // The stop string that is complete first counts (the longest of those), however
  // the text was cut into pieces.
  std::size_t first = 0, end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t at = held_.find(stop);
    if (at == std::string::npos || at + stop.size() > end) continue;
    first = at + stop.size() < end ? at : std::min(first, at);
    end = at + stop.size();
  }
  if (end != std::string::npos) {
    stopped_ = true;
    held_.resize(first);
    return std::exchange(held_, {});
  }
  std::size_t keep = 0;  // length of the longest end that a stop string starts with
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, n))) keep = n;
    }
  }
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return shown;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace weft::serve
