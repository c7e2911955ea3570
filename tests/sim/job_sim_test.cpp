// The job simulator: worked examples, sums that must agree, and repetition to the byte.
#include "weft/sim/job_sim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/data.h"
#include "weft/base/rng.h"
#include "weft/sim/event_queue.h"
#include "weft/sim/job_queue.h"
#include "weft/sim/job_report.h"
#include "weft/workload/job_reader.h"

namespace weft::sim {
namespace {

std::vector<SimJob> random_jobs(std::uint64_t seed, std::size_t count) {
  Rng rng(seed, RngUse::kTest);
  std::vector<SimJob> jobs;
  double at_s = 0;
  for (std::size_t i = 0; i < count; ++i) {
    at_s += rng.next_uniform() * 300;
    const std::int32_t sizes[] = {1, 1, 1, 2, 4, 8, 16};
    jobs.push_back({.submit_s = at_s,
                    .run_s = 10 + 2000 * static_cast<double>(rng.next_uniform()),
                    .gpus = sizes[rng.next_below(7)],
                    .spread_speed = 0.5 + 0.5 * static_cast<double>(rng.next_uniform())});
  }
  return jobs;
}

TEST(EventQueue, OrdersByTimeThenByPush) {
  EventQueue<int> events;
  Rng rng(1, RngUse::kTest);
  std::vector<std::pair<double, int>> expected;
  for (int i = 0; i < 5000; ++i) {
    const double at = rng.next_below(500);
    events.push(at, i);
    expected.emplace_back(at, i);
  }
  std::stable_sort(expected.begin(), expected.end(),
                   [](auto& a, auto& b) { return a.first < b.first; });
  for (const auto& [at, i] : expected) {
    ASSERT_EQ(events.next_time_s(), at);
    ASSERT_EQ(events.pop(), i);
  }
}

// One node of 4: job 0 takes all for 100 s; job 1 (4 GPUs) waits 90 s for capacity; job 2 (1 GPU)
// waits behind it: 80 s for capacity, then, under FIFO, until 200 while job 1 has everything.
TEST(JobQueue, StaysSortedWhereverJobsComeAndGo) {
  JobQueue queue;
  std::vector<sched::JobView> expected;
  Rng rng(2, RngUse::kTest);
  for (sched::JobId id = 0; id < 4000; ++id) {
    // Mostly arrivals at the end; some come back with an early submission.
    const double at = rng.next_below(4) == 0 ? rng.next_below(id + 1) : id;
    const sched::JobView job{.id = id, .submit_s = at};
    queue.insert(job);
    const auto later = [](const sched::JobView& a, const sched::JobView& b) {
      return a.submit_s != b.submit_s ? a.submit_s < b.submit_s : a.id < b.id;
    };
    expected.insert(std::upper_bound(expected.begin(), expected.end(), job, later), job);
    while (!expected.empty() && rng.next_below(20) < 11) {
      const std::uint32_t size = static_cast<std::uint32_t>(expected.size());
      const std::uint32_t at_most = rng.next_below(2) == 0 ? std::min(size, 3u) : size;
      const auto gone = expected.begin() + rng.next_below(at_most);
      ASSERT_TRUE(queue.take(gone->id));
      ASSERT_FALSE(queue.take(gone->id));
      expected.erase(gone);
    }
    ASSERT_EQ(queue.size(), expected.size());
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), queue.view().begin(),
                           [](const auto& a, const auto& b) { return a.id == b.id; }));
  }
}

TEST(JobSim, AttributesEverySecondOfTheWorkedExample) {
  const std::vector<SimJob> jobs = {{.submit_s = 0, .run_s = 100, .gpus = 4},
                                    {.submit_s = 10, .run_s = 100, .gpus = 4},
                                    {.submit_s = 20, .run_s = 5, .gpus = 1}};
  const auto report =
      simulate_jobs(jobs, **sched::make_policy("fifo"), {.node_gpus = {4}, .delays = true});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->jobs[1].first_start_s, 100);
  EXPECT_EQ(report->jobs[2].first_start_s, 200);
  EXPECT_EQ(report->jobs[1].delay.capacity_s, 90);
  EXPECT_EQ(report->jobs[2].delay.capacity_s, 180);
  EXPECT_EQ(report->mean_jct_s, (100 + 190 + 185) / 3.0);
  EXPECT_EQ(report->makespan_s, 205);
  EXPECT_DOUBLE_EQ(report->utilisation, (400 + 400 + 5) / (4 * 205.0));
}

TEST(JobSim, WaitsForScatteredGpusAreFragmentation) {
  const std::vector<SimJob> jobs = {{.submit_s = 0, .run_s = 50, .gpus = 3},
                                    {.submit_s = 0, .run_s = 80, .gpus = 3},
                                    {.submit_s = 10, .run_s = 10, .gpus = 2}};
  const auto report =
      simulate_jobs(jobs, **sched::make_policy("strict"), {.node_gpus = {4, 4}, .delays = true});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->jobs[2].first_start_s, 50);
  EXPECT_EQ(report->jobs[2].delay.fragmentation_s, 40);
}

class EveryPolicy : public testing::TestWithParam<std::string> {};

TEST_P(EveryPolicy, FinishesAllJobsAndItsDelaysAddUp) {
  const auto policy = sched::make_policy(GetParam());
  const auto jobs = random_jobs(3, 2000);
  const auto report = simulate_jobs(
      jobs, **policy,
      {.node_gpus = std::vector<std::int32_t>(6, 8), .restart_s = 20, .delays = true});
  ASSERT_TRUE(report) << report.error().message;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const JobOutcome& outcome = report->jobs[i];
    ASSERT_GE(outcome.finish_s, jobs[i].submit_s + jobs[i].run_s - 1e-6);
    EXPECT_NEAR(outcome.delay.sum(), outcome.wait_s, 1e-6 * (1 + outcome.finish_s));
    if (outcome.preemptions == 0 && !outcome.spread) {
      EXPECT_NEAR(outcome.finish_s, outcome.first_start_s + jobs[i].run_s, 1e-6);
    }
  }
}

TEST_P(EveryPolicy, RepeatsToTheByteAndAnswersRecordedViewsAlike) {
  const auto policy = sched::make_policy(GetParam());
  const auto jobs = random_jobs(4, 3000);
  const JobSimOptions options{.node_gpus = std::vector<std::int32_t>(6, 8), .record_views = 1000};
  const auto report = simulate_jobs(jobs, **policy, options);
  const auto again = simulate_jobs(jobs, **policy, options);
  ASSERT_TRUE(report && again);
  EXPECT_EQ(dump_json(to_json(*report)), dump_json(to_json(*again)));
  ASSERT_EQ(report->recorded.size(), 1000u);
  // As a live controller would: from text, with a policy object of its own.
  const auto live = sched::make_policy(GetParam());
  for (const RecordedDecision& recorded : report->recorded) {
    const auto text = parse_json(dump_json(recorded.view), "view");
    ASSERT_TRUE(text);
    const auto view = sched::view_from_json(*text);
    ASSERT_TRUE(view) << view.error().message;
    ASSERT_EQ(dump_json(sched::to_json((*live)->decide(view->view, true))),
              dump_json(recorded.decision));
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryPolicy, testing::ValuesIn(sched::policy_names()),
                         [](const auto& info) { return info.param; });

TEST(ComparePolicies, IntervalIsStudents) {
  std::vector<Json> rows;
  for (const double jct : {10.0, 12.0, 14.0, 5.0, 6.0, 7.0}) {
    JobSimReport report;
    report.mean_jct_s = jct;
    rows.push_back(to_json(report));
  }
  const auto table = compare_policies(rows, {"a", "b"});
  EXPECT_DOUBLE_EQ(table[0].mean_jct_s.mean, 12);
  EXPECT_NEAR(table[0].mean_jct_s.half_width, 4.303 * 2 / std::sqrt(3.0), 1e-3);  // t of 2 degrees
  EXPECT_DOUBLE_EQ(table[1].speedup.mean, 2);
  EXPECT_NEAR(table[1].speedup.half_width, 0, 1e-12);
}

TEST(JobSim, RefusesJobsLargerThanTheClusterAndSaysHowMany) {
  const auto report =
      simulate_jobs({{.submit_s = 0, .run_s = 1, .gpus = 9}, {.submit_s = 1, .run_s = 1}},
                    **sched::make_policy("fifo"), {.node_gpus = {8}});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->refused, 1);
  EXPECT_EQ(report->jobs[1].finish_s, 2);
  EXPECT_FALSE(simulate_jobs({}, **sched::make_policy("fifo"), {.node_gpus = {0}}));
}

}  // namespace
}  // namespace weft::sim
