#include "weft/base/deadline.h"

#include <algorithm>
#include <limits>

namespace weft {

Deadline Deadline::after(std::chrono::nanoseconds from_now) {
  const auto now = Clock::now();
  const auto room = Clock::time_point::max() - now;
  return Deadline(from_now >= room ? Clock::time_point::max() : now + from_now);
}

Deadline::Clock::duration Deadline::left() const {
  return std::max(Clock::duration::zero(), time_ - Clock::now());
}

int Deadline::left_ms() const {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left()).count();
  return static_cast<int>(std::min<std::int64_t>(ms, std::numeric_limits<int>::max()));
}

Status Deadline::check(std::string_view what) const {
  if (!expired()) return {};
  return fail(ErrorCode::kDeadlineExceeded, "{} did not finish before its deadline", what);
}

}  // namespace weft
