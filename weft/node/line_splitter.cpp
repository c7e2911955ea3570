#include "weft/node/line_splitter.h"

namespace weft::node {
namespace {

// What a terminal would show of the line in the end.
std::string_view visible(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::size_t back = line.rfind('\r');
  return back == std::string_view::npos ? line : line.substr(back + 1);
}

}  // namespace

void LineSplitter::add(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    held_.append(bytes.substr(0, end));
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    if (end != std::string_view::npos) {
      sink(visible(held_));
      held_.clear();
    } else if (held_.size() >= kLongest) {
      sink(visible(held_));
      held_.clear();
    }
  }
}

void LineSplitter::finish(const Sink& sink) {
  if (!held_.empty()) sink(visible(held_));
  held_.clear();
}

}  // namespace weft::node
