#include "weft/serve/load_saturation.h"

#include <cmath>

#include "weft/workload/special_functions.h"

namespace weft::serve {
namespace {

bool rises(const std::deque<double>& y) {
  const auto n = static_cast<double>(y.size());
  double mean = 0;
  for (const double v : y) mean += v / n;
  const double middle = (n - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double x = static_cast<double>(i) - middle;
    xy += x * (y[i] - mean);
    xx += x * x;
    yy += (y[i] - mean) * (y[i] - mean);
  }
  const double slope = xy / xx;
  if (!(slope > 0)) return false;
  const double residual = (yy - slope * xy) / (n - 2);
  if (residual <= 0) return true;
  const double t = slope / std::sqrt(residual / xx);
  return workload::student_two_sided(t, n - 2) < 0.01;
}

}  // namespace

void SaturationWatch::second(int in_flight) {
  in_flight_.push_back(in_flight);
  // A second in which no first token came says nothing new.
  const double last = ttft_.empty() ? 0 : ttft_.back();
  ttft_.push_back(ttft_count_ > 0 ? ttft_sum_ / ttft_count_ : last);
  ttft_sum_ = 0;
  ttft_count_ = 0;
  if (in_flight_.size() > kSeconds) {
    in_flight_.pop_front();
    ttft_.pop_front();
  }
}

bool SaturationWatch::saturated() const {
  return in_flight_.size() == kSeconds && rises(in_flight_) && rises(ttft_);
}

}  // namespace weft::serve
