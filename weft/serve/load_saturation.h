// Tells when a server has been asked for more than it can do.
#pragma once

#include <cstddef>
#include <deque>

namespace weft::serve {

// Over the last 20 seconds, both the requests in flight and the times to the first token
// rise significantly (slope of a straight line, two-sided p < 0.01): queues grow without
// end. One of the two alone is a burst.
class SaturationWatch {
 public:
  static constexpr std::size_t kSeconds = 20;

  void add_ttft(double seconds) {
    ttft_sum_ += seconds;
    ++ttft_count_;
  }
  // Called once a second.
  void second(int in_flight);
  bool saturated() const;

 private:
  double ttft_sum_ = 0;
  int ttft_count_ = 0;
  std::deque<double> in_flight_, ttft_;
};

}  // namespace weft::serve
