// Deadline: a point in time after which a wait gives up. Every wait takes one.
#pragma once

#include <chrono>
#include <string_view>

#include "weft/base/result.h"

namespace weft {

// A value on the steady clock, so that setting the wall clock does not move it.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  // `from_now` may be as large as hours; beyond the clock's range it saturates.
  static Deadline after(std::chrono::nanoseconds from_now);
  static Deadline at(Clock::time_point time) { return Deadline(time); }

  Clock::time_point time() const { return time_; }
  bool expired() const { return Clock::now() >= time_; }
  Clock::duration left() const;  // never negative
  // For poll(2) and its kin: rounded up, so that a wait does not end early.
  int left_ms() const;
  Deadline earlier(Deadline other) const { return time_ < other.time_ ? *this : other; }

  // kDeadlineExceeded naming `what`, once expired.
  Status check(std::string_view what) const;

 private:
  explicit Deadline(Clock::time_point time) : time_(time) {}
  Clock::time_point time_;
};

}  // namespace weft
