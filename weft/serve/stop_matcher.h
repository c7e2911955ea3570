// StopMatcher: cuts a growing text before the first of some stop strings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::serve {

// One object per reply; not for concurrent use.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Takes the next piece and returns the text that can be shown: it holds back an
  // end that may be the start of a stop string. Once stopped() is true the rest is
  // dropped.
  std::string push(std::string_view piece);
  // What was held back, at the end of the reply.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace weft::serve
