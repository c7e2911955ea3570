#include "weft/sched/preemptive_policy.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "weft/sched/gang_placement.h"
#include "weft/sched/queue_policy.h"

namespace weft::sched {
namespace {

struct Ranked {
  double key;
  double submit_s;
  JobId id;
  std::int32_t gpus;
  std::ptrdiff_t run;  // index into view.running, or -1
};

}  // namespace

Decision<SchedActions> PreemptivePolicy::decide(const ClusterView& view, bool explain) const {
  Decision<SchedActions> decision;
  if (view.queued.empty()) return decision;
  const auto queue_of = [&](double attained) {
    double level = 0;
    for (const double threshold : settings_.thresholds) level += attained >= threshold;
    return level;
  };
  std::vector<Ranked> ranked;
  std::int64_t wanted = 0;
  for (const JobView& job : view.queued) {
    wanted += job.gpus;
    const double key =
        settings_.ranking == Ranking::kRemaining ? job.remaining_s : queue_of(job.attained_gpu_s);
    ranked.push_back({key, job.submit_s, job.id, job.gpus, -1});
  }
  std::int64_t capacity = 0;
  FreeNodes free(view.node_gpus, view.node_free);
  capacity = free.total();
  // Where everything that waits fits, no running job can lose its place: not ranked.
  const std::size_t rivals = wanted <= capacity ? 0 : view.running.size();
  ranked.reserve(view.queued.size() + rivals);
  for (std::size_t r = 0; r < rivals; ++r) {
    const RunningView& run = view.running[r];
    const JobView& job = view.running_jobs[r];
    const double attained = job.attained_gpu_s + run.gpus * (view.now_s - run.start_s);
    const double key = settings_.ranking == Ranking::kRemaining ? run.expected_end_s - view.now_s
                                                                : queue_of(attained);
    ranked.push_back({key, job.submit_s, job.id, run.gpus, static_cast<std::ptrdiff_t>(r)});
    capacity += run.gpus;
  }
  std::sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    if (a.key != b.key) return a.key < b.key;
    return a.submit_s != b.submit_s ? a.submit_s < b.submit_s : a.id < b.id;
  });
  std::vector<const Ranked*> start;
  for (const Ranked& job : ranked) {
    const bool chosen = job.gpus <= capacity;
    if (chosen) capacity -= job.gpus;
    if (chosen && job.run < 0) start.push_back(&job);
    if (!chosen && job.run >= 0) {
      decision.chosen.preempt.push_back(job.id);
      free.release(view.running[static_cast<std::size_t>(job.run)].shares);
    }
    if (!chosen && explain) {
      decision.rejected.push_back({fmt::format("job {}", job.id),
                                   "jobs before it in the ranking fill the cluster", job.key});
    }
  }
  for (const Ranked* job : start) {
    auto shares = free.place(job->gpus, Locality::kAny);
    WEFT_CHECK(!shares.empty(), "job {} was chosen but does not fit", job->id);
    free.take(shares);
    decision.chosen.start.push_back({job->id, std::move(shares)});
  }
  if (explain) {
    decision.reason = fmt::format("{}: {} start, {} are preempted", settings_.name,
                                  decision.chosen.start.size(), decision.chosen.preempt.size());
  }
  return decision;
}

std::vector<std::string> policy_names() {
  return {"fifo", "backfill", "srtf", "las", "philly", "strict", "spread"};
}

Result<std::unique_ptr<SchedPolicy>> make_policy(std::string_view name) {
  const auto queue = [&](bool backfill, LocalityRule rule) {
    return std::make_unique<QueuePolicy>(
        QueueSettings{.name = std::string(name), .backfill = backfill, .locality = rule});
  };
  if (name == "fifo") return queue(false, LocalityRule::kAny);
  if (name == "backfill" || name == "spread") return queue(true, LocalityRule::kAny);
  if (name == "strict") return queue(true, LocalityRule::kStrict);
  if (name == "philly") return queue(true, LocalityRule::kPatient);
  if (name == "srtf") return std::make_unique<PreemptivePolicy>(PreemptiveSettings{});
  if (name == "las") {
    return std::make_unique<PreemptivePolicy>(
        PreemptiveSettings{.name = "las", .ranking = Ranking::kAttained, .round_s = 60});
  }
  return fail(ErrorCode::kInvalidArgument, "there is no scheduling policy '{}'; known: {}", name,
              fmt::join(policy_names(), ", "));
}

}  // namespace weft::sched
