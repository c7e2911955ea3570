// The waiting jobs, in order of submission.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "weft/sched/view.h"

namespace weft::sim {

// A sorted sequence that stays one piece of memory, so that views are spans of it. Taking
// a job moves only the shorter side: FIFO takes from the front of a queue of thousands.
class JobQueue {
 public:
  bool empty() const { return head_ == jobs_.size(); }
  std::size_t size() const { return jobs_.size() - head_; }
  std::span<const sched::JobView> view() const { return std::span(jobs_).subspan(head_); }

  // By (submission, id).
  void insert(const sched::JobView& job) {
    if (head_ > jobs_.size() / 2) {
      jobs_.erase(jobs_.begin(), begin());
      head_ = 0;
    }
    const auto at = std::upper_bound(
        begin(), jobs_.end(), job, [](const sched::JobView& a, const sched::JobView& b) {
          return a.submit_s != b.submit_s ? a.submit_s < b.submit_s : a.id < b.id;
        });
    if (head_ > 0 && at - begin() < jobs_.end() - at) {
      std::move(begin(), at, begin() - 1);
      --head_;
      *(at - 1) = job;
    } else {
      jobs_.insert(at, job);
    }
  }
  // False: it is not there.
  bool take(sched::JobId id) {
    const auto at =
        std::find_if(begin(), jobs_.end(), [&](const sched::JobView& job) { return job.id == id; });
    if (at == jobs_.end()) return false;
    if (at - begin() < jobs_.end() - at) {
      std::move_backward(begin(), at, at + 1);
      ++head_;
    } else {
      jobs_.erase(at);
    }
    return true;
  }

 private:
  std::vector<sched::JobView>::iterator begin() {
    return jobs_.begin() + static_cast<std::ptrdiff_t>(head_);
  }
  std::vector<sched::JobView> jobs_;
  std::size_t head_ = 0;  // those before it have left
};

}  // namespace weft::sim
