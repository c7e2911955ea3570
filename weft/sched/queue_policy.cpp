#include "weft/sched/queue_policy.h"

#include <algorithm>
#include <limits>

#include "weft/sched/gang_placement.h"

namespace weft::sched {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Release {
  double at_s;
  std::size_t run;  // index into view.running
};
bool later(const Release& a, const Release& b) {
  return a.at_s != b.at_s ? a.at_s > b.at_s : a.run > b.run;
}

// The running jobs by expected end, soonest first, made once a decision: O(R) to build
// and O(log R) for each one looked at.
class Releases {
 public:
  explicit Releases(const ClusterView& view) : view_(view) {}
  // The i-th to end.
  const Release* at(std::size_t i) {
    if (heap_.empty() && order_.empty()) {
      heap_.reserve(view_.running.size());
      for (std::size_t r = 0; r < view_.running.size(); ++r) {
        heap_.push_back({std::max(view_.running[r].expected_end_s, view_.now_s), r});
      }
      std::make_heap(heap_.begin(), heap_.end(), later);
    }
    while (order_.size() <= i && !heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      order_.push_back(heap_.back());
      heap_.pop_back();
    }
    return i < order_.size() ? &order_[i] : nullptr;
  }

 private:
  const ClusterView& view_;
  std::vector<Release> heap_, order_;
};

// EASY: when the first blocked job can start by count of GPUs, and what is spare then.
struct Reservation {
  double at_s = kNever;
  std::int64_t spare = 0;
};
Reservation reserve(const ClusterView& view, const FreeNodes& free, Releases& releases,
                    std::int32_t gpus) {
  std::int64_t total = free.total();
  if (total >= gpus) return {view.now_s, 0};  // blocked by locality, not by count
  for (std::size_t i = 0;; ++i) {
    const Release* next = releases.at(i);
    if (next == nullptr) return {};
    total += view.running[next->run].gpus;
    if (total >= gpus) return {next->at_s, total - gpus};
  }
}

// How long until a compact place is expected: releases the next 64 to end one by one.
double compact_wait_s(const ClusterView& view, FreeNodes free, Releases& releases,
                      std::int32_t gpus) {
  constexpr std::size_t kMost = 64;
  for (std::size_t i = 0; i < kMost; ++i) {
    const Release* next = releases.at(i);
    if (next == nullptr) return kNever;
    free.release(view.running[next->run].shares);
    if (!free.place(gpus, Locality::kCompact).empty()) return next->at_s - view.now_s;
  }
  return kNever;
}

}  // namespace

Decision<SchedActions> QueuePolicy::decide(const ClusterView& view, bool explain) const {
  Decision<SchedActions> decision;
  SchedActions& actions = decision.chosen;
  if (view.queued.empty()) return decision;
  FreeNodes free(view.node_gpus, view.node_free);
  Releases releases(view);
  Reservation reservation;
  bool blocked = false;
  const auto reject = [&](const JobView& job, const char* why, double cost) {
    if (explain) decision.rejected.push_back({fmt::format("job {}", job.id), why, cost});
  };
  const std::size_t depth = std::min(settings_.depth, view.queued.size());
  for (std::size_t i = 0; i < depth && free.total() > 0; ++i) {
    const JobView& job = view.queued[i];
    const double ends_s = view.now_s + job.remaining_s;
    if (blocked) {
      if (!settings_.backfill) break;
      if (job.gpus > free.total()) continue;
      if (ends_s > reservation.at_s && job.gpus > reservation.spare) {
        reject(job, "would delay the first waiting job", ends_s - reservation.at_s);
        continue;
      }
    }
    auto shares = free.place(
        job.gpus, settings_.locality == LocalityRule::kAny ? Locality::kAny : Locality::kCompact);
    if (shares.empty() && settings_.locality == LocalityRule::kPatient &&
        job.gpus <= free.total()) {
      const double slow_s = job.remaining_s * (1 / job.spread_speed - 1);
      const double wait_s = compact_wait_s(view, free, releases, job.gpus);
      const double patience_s = std::clamp(settings_.patience_share * job.expected_run_s,
                                           settings_.patience_least_s, settings_.patience_most_s);
      const double until_s = job.waiting_since_s + patience_s;
      if (slow_s <= wait_s || (view.now_s >= until_s && wait_s > patience_s)) {
        shares = free.place(job.gpus, Locality::kAny);
      } else if (view.now_s < until_s && (actions.wake_s == 0 || until_s < actions.wake_s)) {
        actions.wake_s = until_s;
      }
      reject(job,
             shares.empty() ? "spread placement: slower than waiting for a compact one"
                            : "waiting for a compact placement: slower than spreading now",
             shares.empty() ? slow_s - wait_s : wait_s - slow_s);
    }
    if (shares.empty()) {
      if (!blocked) {
        blocked = true;
        reservation = reserve(view, free, releases, job.gpus);
        if (reservation.at_s <= view.now_s) {  // fragmented: others may overtake it
          reservation = {kNever, 0};
        }
        reject(job, job.gpus > free.total() ? "not enough free GPUs" : "free GPUs are scattered",
               reservation.at_s == kNever ? 0 : reservation.at_s - view.now_s);
      }
      continue;
    }
    free.take(shares);
    if (blocked && ends_s > reservation.at_s) reservation.spare -= job.gpus;
    actions.start.push_back({job.id, std::move(shares)});
  }
  if (explain) {
    decision.reason =
        fmt::format("{}: {} of {} waiting jobs start; {} GPUs stay free", settings_.name,
                    actions.start.size(), view.queued.size(), free.total());
  }
  return decision;
}

}  // namespace weft::sched
