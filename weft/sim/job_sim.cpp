#include "weft/sim/job_sim.h"

#include <algorithm>
#include <cmath>

#include "weft/base/rng.h"
#include "weft/sched/gang_placement.h"
#include "weft/sim/event_queue.h"
#include "weft/sim/job_queue.h"
#include "weft/workload/stats.h"

namespace weft::sim {
namespace {

enum class EventKind : std::uint8_t { kArrive, kFinish, kWake };
struct Event {
  EventKind kind;
  sched::JobId job;
  std::uint32_t run;  // the run that ends; an older one is stale
};

// All state of one simulation. The views handed out are spans into it.
struct Simulation {
  const std::vector<SimJob>& jobs;
  const sched::SchedPolicy& policy;
  const JobSimOptions& options;
  JobSimReport report = {};
  EventQueue<Event> events = {};
  double now_s = 0;

  std::vector<std::int32_t> free = options.node_gpus;
  std::int32_t largest = 0;
  std::int64_t capacity = 0, busy = 0;
  JobQueue queued = {};
  std::vector<sched::RunningView> running = {};  // by id
  std::vector<sched::JobView> running_jobs = {};
  struct Progress {
    double work_left_s = 0;  // on a compact placement
    double speed = 1;
    double overhead_s = 0;  // of this run: restart
    double attained_gpu_s = 0;
    std::uint32_t run = 0;
    double queued_since_s = 0;
    std::vector<sched::NodeShare> shares = {};
  };
  std::vector<Progress> progress = {};
  double wake_s = 0, next_round_s = 0;
  double queue_area = 0, busy_area = 0, last_s = 0;
  std::size_t finished = 0, sample_every = 1, changes = 0;

  void advance_to(double time_s) {
    const double span = time_s - last_s;
    queue_area += span * static_cast<double>(queued.size());
    busy_area += span * static_cast<double>(busy);
    if (options.delays && span > 0 && !queued.empty()) attribute(span);
    last_s = now_s = time_s;
  }

  // The state after the last decision held for `span`.
  void attribute(double span) {
    const sched::FreeNodes nodes(options.node_gpus, free);
    for (const sched::JobView& job : queued.view()) {
      DelayParts& parts = report.jobs[job.id].delay;
      if (job.gpus > nodes.total())
        parts.capacity_s += span;
      else if (nodes.place(job.gpus, sched::Locality::kCompact).empty())
        parts.fragmentation_s += span;
      else
        parts.ordering_s += span;
    }
  }

  sched::JobView view_of(sched::JobId id) const {
    const SimJob& job = jobs[id];
    const Progress& p = progress[id];
    const double expected = job.expected_run_s > 0 ? job.expected_run_s : job.run_s;
    const double left = job.run_s > 0 ? expected * (p.work_left_s / job.run_s) : 0;
    return {.id = id,
            .gpus = job.gpus,
            .submit_s = job.submit_s,
            .attained_gpu_s = p.attained_gpu_s,
            .expected_run_s = expected,
            .remaining_s = left,
            .spread_speed = job.spread_speed,
            .waiting_since_s = p.queued_since_s};
  }

  void enqueue(sched::JobId id) {
    progress[id].queued_since_s = now_s;
    queued.insert(view_of(id));
  }

  std::size_t running_at(sched::JobId id) const {
    const auto at =
        std::lower_bound(running.begin(), running.end(), id,
                         [](const sched::RunningView& r, sched::JobId i) { return r.id < i; });
    return static_cast<std::size_t>(at - running.begin());
  }

  // Takes a job off its GPUs and books what it did.
  void stop(std::size_t at) {
    const sched::JobId id = running[at].id;
    Progress& p = progress[id];
    const double held = now_s - running[at].start_s;
    p.work_left_s = std::max(0.0, p.work_left_s - std::max(0.0, held - p.overhead_s) * p.speed);
    p.attained_gpu_s += held * jobs[id].gpus;
    for (const sched::NodeShare& s : p.shares) free[static_cast<std::size_t>(s.node)] += s.gpus;
    busy -= jobs[id].gpus;
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(at));
    running_jobs.erase(running_jobs.begin() + static_cast<std::ptrdiff_t>(at));
    ++p.run;
  }

  Status start(const sched::Start& action) {
    const auto bad = [&](const char* what) -> Status {
      return fail(ErrorCode::kInternal, "policy {} at {:.0f} s: job {}: {}", policy.name(), now_s,
                  action.id, what);
    };
    if (!queued.take(action.id)) return bad("is not waiting");
    Progress& p = progress[action.id];
    const SimJob& job = jobs[action.id];
    std::int32_t gpus = 0;
    for (const sched::NodeShare& s : action.shares) {
      if (s.node < 0 || static_cast<std::size_t>(s.node) >= free.size() || s.gpus <= 0 ||
          free[static_cast<std::size_t>(s.node)] < s.gpus) {
        return bad("is given GPUs that are not free");
      }
      free[static_cast<std::size_t>(s.node)] -= s.gpus;
      gpus += s.gpus;
    }
    if (gpus != job.gpus) return bad("is not given the GPUs of its gang");
    busy += gpus;
    JobOutcome& outcome = report.jobs[action.id];
    outcome.wait_s += now_s - p.queued_since_s;
    const bool again = outcome.first_start_s >= 0;
    if (!again) outcome.first_start_s = now_s;
    outcome.nodes = static_cast<std::int32_t>(action.shares.size());
    outcome.spread = !sched::is_compact(action.shares.size(), gpus, largest);
    p.shares = action.shares;
    p.speed = outcome.spread ? job.spread_speed : 1;
    p.overhead_s = again ? options.restart_s : 0;
    const double end_s = now_s + p.overhead_s + p.work_left_s / p.speed;
    events.push(end_s, {EventKind::kFinish, action.id, p.run});
    const sched::JobView view = view_of(action.id);
    const std::size_t where = running_at(action.id);
    running.insert(running.begin() + static_cast<std::ptrdiff_t>(where),
                   {.id = action.id,
                    .gpus = gpus,
                    .start_s = now_s,
                    .expected_end_s = now_s + p.overhead_s + view.remaining_s / p.speed,
                    .shares = p.shares});
    running_jobs.insert(running_jobs.begin() + static_cast<std::ptrdiff_t>(where), view);
    return {};
  }

  Status decide() {
    if (queued.empty()) return {};
    const sched::ClusterView view{.now_s = now_s,
                                  .node_gpus = options.node_gpus,
                                  .node_free = free,
                                  .queued = queued.view(),
                                  .running = running,
                                  .running_jobs = running_jobs};
    const bool record = options.record_views > 0 && report.recorded.size() < options.record_views &&
                        report.decisions % sample_every == 0;
    const auto decision = policy.decide(view, record);
    if (record) report.recorded.push_back({to_json(view), sched::to_json(decision)});
    ++report.decisions;
    for (const sched::JobId id : decision.chosen.preempt) {
      const std::size_t at = running_at(id);
      if (at >= running.size() || running[at].id != id) {
        return fail(ErrorCode::kInternal,
                    "policy {} at {:.0f} s: preempts job {}, which does not run", policy.name(),
                    now_s, id);
      }
      stop(at);
      ++report.jobs[id].preemptions;
      ++report.preemptions;
      enqueue(id);
    }
    for (const sched::Start& action : decision.chosen.start) WEFT_TRY(start(action));
    if (decision.chosen.wake_s > now_s && (wake_s <= now_s || decision.chosen.wake_s < wake_s)) {
      wake_s = decision.chosen.wake_s;
      events.push(wake_s, {EventKind::kWake, 0, 0});
    }
    return {};
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case EventKind::kArrive:
        enqueue(event.job);
        break;
      case EventKind::kFinish: {
        const std::size_t at = running_at(event.job);
        if (at >= running.size() || running[at].id != event.job ||
            progress[event.job].run != event.run) {
          return;  // that run was preempted
        }
        stop(at);
        report.jobs[event.job].finish_s = now_s;
        ++finished;
        break;
      }
      case EventKind::kWake:
        break;
    }
  }

  Status run() {
    const double round = policy.round_s();
    while (!events.empty()) {
      advance_to(events.next_time_s());
      while (!events.empty() && events.next_time_s() == now_s) handle(events.pop());
      if (round > 0) {
        const double next = std::ceil(now_s / round) * round;
        if (next > now_s) {  // decide at the round's end
          if (!queued.empty() && next_round_s < next) {
            next_round_s = next;
            events.push(next, {EventKind::kWake, 0, 0});
          }
        } else {
          WEFT_TRY(decide());
          if (!queued.empty()) {
            next_round_s = now_s + round;
            events.push(next_round_s, {EventKind::kWake, 0, 0});
          }
        }
      } else {
        WEFT_TRY(decide());
      }
      report.max_queue = std::max(report.max_queue, static_cast<std::int64_t>(queued.size()));
      sample();
      if (options.progress && (++changes & 1023) == 0) options.progress(finished, jobs.size());
      if (queued.size() + running.size() > 0 && events.empty()) {
        return fail(ErrorCode::kInternal, "policy {} leaves {} jobs waiting on a free cluster",
                    policy.name(), queued.size());
      }
      if (finished + static_cast<std::size_t>(report.refused) == jobs.size()) break;
    }
    return {};
  }

  // Keeps every `stride`-th point, doubling the stride when the buffer is full.
  std::size_t stride = 1, since = 0;
  void sample() {
    if (++since < stride) return;
    since = 0;
    report.timeline.push_back(
        {now_s, static_cast<std::int32_t>(queued.size()), static_cast<std::int32_t>(busy)});
    if (report.timeline.size() < 2048) return;
    for (std::size_t i = 0; i < 1024; ++i) report.timeline[i] = report.timeline[2 * i];
    report.timeline.resize(1024);
    stride *= 2;
  }

  void summarise() {
    std::vector<double> jct;
    double wait = 0, total = 0, first = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      JobOutcome& outcome = report.jobs[i];
      if (outcome.finish_s < 0) continue;
      if (jct.empty()) first = jobs[i].submit_s;
      jct.push_back(outcome.finish_s - jobs[i].submit_s);
      total += jct.back();
      wait += outcome.wait_s;
      report.makespan_s = std::max(report.makespan_s, outcome.finish_s);
      report.spread += outcome.spread;
      report.delay.capacity_s += outcome.delay.capacity_s;
      report.delay.fragmentation_s += outcome.delay.fragmentation_s;
      report.delay.ordering_s += outcome.delay.ordering_s;
    }
    if (jct.empty()) return;
    const auto n = static_cast<double>(jct.size());
    report.mean_jct_s = total / n;
    report.mean_wait_s = wait / n;
    std::sort(jct.begin(), jct.end());
    report.p50_jct_s = workload::quantile_sorted(jct, 0.5);
    report.p99_jct_s = workload::quantile_sorted(jct, 0.99);
    report.makespan_s -= first;
    report.utilisation = busy_area / (static_cast<double>(capacity) * report.makespan_s);
    report.mean_queue = queue_area / report.makespan_s;
    report.events = events.popped();
  }
};

}  // namespace

Result<JobSimReport> simulate_jobs(const std::vector<SimJob>& jobs,
                                   const sched::SchedPolicy& policy, const JobSimOptions& options) {
  Simulation sim{.jobs = jobs, .policy = policy, .options = options};
  sim.report.policy = policy.name();
  sim.report.jobs.resize(jobs.size());
  sim.progress.resize(jobs.size());
  for (const std::int32_t gpus : options.node_gpus) {
    sim.capacity += gpus;
    sim.largest = std::max(sim.largest, gpus);
  }
  if (sim.capacity == 0) return fail(ErrorCode::kInvalidArgument, "the cluster has no GPU");
  if (options.record_views > 0) {
    sim.sample_every = std::max<std::size_t>(1, jobs.size() / (2 * options.record_views));
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (i > 0 && jobs[i].submit_s < jobs[i - 1].submit_s) {
      return fail(ErrorCode::kInvalidArgument, "job {} is submitted before the one ahead of it", i);
    }
    sim.progress[i].work_left_s = jobs[i].run_s;
    if (jobs[i].gpus > sim.capacity) {
      ++sim.report.refused;
      continue;
    }
    sim.events.push(jobs[i].submit_s, {EventKind::kArrive, static_cast<sched::JobId>(i), 0});
  }
  if (!jobs.empty()) sim.last_s = jobs.front().submit_s;
  WEFT_TRY(sim.run());
  sim.summarise();
  return std::move(sim.report);
}

Json to_json(const JobSimReport& report) {
  return {{"policy", report.policy},
          {"jobs", report.jobs.size()},
          {"refused", report.refused},
          {"mean_jct_s", report.mean_jct_s},
          {"p50_jct_s", report.p50_jct_s},
          {"p99_jct_s", report.p99_jct_s},
          {"mean_wait_s", report.mean_wait_s},
          {"makespan_s", report.makespan_s},
          {"utilisation", report.utilisation},
          {"mean_queue", report.mean_queue},
          {"max_queue", report.max_queue},
          {"preemptions", report.preemptions},
          {"spread", report.spread},
          {"events", report.events},
          {"decisions", report.decisions},
          {"delay_s",
           {{"capacity", report.delay.capacity_s},
            {"fragmentation", report.delay.fragmentation_s},
            {"ordering", report.delay.ordering_s}}}};
}

std::vector<SimJob> sim_jobs(const workload::JobTrace& trace, std::uint64_t seed) {
  std::vector<const workload::Job*> usable;
  for (const workload::Job& job : trace.jobs) {
    if (job.run_s > 0 && job.gpus > 0) usable.push_back(&job);
  }
  Rng rng(seed, RngUse::kShuffle);
  std::vector<SimJob> jobs;
  jobs.reserve(usable.size());
  for (const workload::Job* job : usable) {
    const workload::Job& shape =
        seed == 0 ? *job : *usable[rng.next_below(static_cast<std::uint32_t>(usable.size()))];
    jobs.push_back({.submit_s = job->submit_s, .run_s = shape.run_s, .gpus = shape.gpus});
  }
  return jobs;
}

}  // namespace weft::sim
