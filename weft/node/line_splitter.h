// Cuts what a process writes into lines.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace weft::node {

// Lines end at "\n"; one longer than kLongest goes out in pieces, and what has no end when
// the stream ends goes out as it is. A "\r" before the end of a line is dropped with what
// stood before it: a progress bar that rewrites its line shows its last state.
class LineSplitter {
 public:
  static constexpr std::size_t kLongest = 64 << 10;
  using Sink = std::function<void(std::string_view line)>;

  void add(std::string_view bytes, const Sink& sink);
  void finish(const Sink& sink);

 private:
  std::string held_;
};

}  // namespace weft::node
