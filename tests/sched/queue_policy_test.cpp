// What the queue policies promise, on views small enough to work out by hand.
#include "weft/sched/queue_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/rng.h"
#include "weft/sched/gang_placement.h"

namespace weft::sched {
namespace {

using testing::ElementsAre;

JobView job(JobId id, int gpus, double run_s, double spread_speed = 1, double since_s = 0) {
  return {.id = id,
          .gpus = gpus,
          .submit_s = static_cast<double>(id),
          .expected_run_s = run_s,
          .remaining_s = run_s,
          .spread_speed = spread_speed,
          .waiting_since_s = since_s};
}

// Two nodes of 8; what runs is given as (gpus on node 0, gpus on node 1, end).
struct Scene {
  std::vector<std::int32_t> size = {8, 8}, free = {8, 8};
  std::vector<JobView> queued = {}, running_jobs = {};
  std::vector<RunningView> running = {};
  std::vector<std::vector<NodeShare>> shares = {};

  void run(JobId id, int on0, int on1, double end_s) {
    shares.reserve(16);
    auto& mine = shares.emplace_back();
    if (on0 > 0) mine.push_back({0, on0});
    if (on1 > 0) mine.push_back({1, on1});
    free[0] -= on0;
    free[1] -= on1;
    running.push_back({.id = id, .gpus = on0 + on1, .expected_end_s = end_s, .shares = mine});
    running_jobs.push_back(job(id, on0 + on1, end_s));
  }
  ClusterView view(double now_s = 100) const {
    return {.now_s = now_s,
            .node_gpus = size,
            .node_free = free,
            .queued = queued,
            .running = running,
            .running_jobs = running_jobs};
  }
};

std::vector<JobId> started(const Decision<SchedActions>& decision) {
  std::vector<JobId> ids;
  for (const Start& start : decision.chosen.start) ids.push_back(start.id);
  return ids;
}

Decision<SchedActions> ask(const char* policy, const ClusterView& view) {
  return (*make_policy(policy))->decide(view, true);
}

TEST(Fifo, NobodyOvertakesTheFirst) {
  Scene scene;
  scene.run(0, 4, 0, 1000);
  scene.queued = {job(1, 16, 10), job(2, 1, 10)};
  EXPECT_THAT(started(ask("fifo", scene.view())), ElementsAre());
}

TEST(Backfill, OvertakesOnlyWhereTheFirstIsNotDelayed) {
  Scene scene;
  scene.run(0, 8, 4, 1000);  // 4 free; job 1 can start at 1000, with 2 GPUs spare then
  scene.queued = {job(1, 14, 10), job(2, 2, 5000), job(3, 2, 5000), job(4, 2, 900)};
  const auto decision = ask("backfill", scene.view());
  EXPECT_THAT(started(decision),
              ElementsAre(2, 4));  // 2 fits the spare, 3 does not, 4 ends by 1000
  EXPECT_EQ(decision.rejected.at(0).what, "job 1");
  EXPECT_EQ(decision.rejected.at(0).cost, 900);  // seconds until its reservation
}

TEST(Strict, LeavesScatteredGpusFree) {
  Scene scene;
  scene.run(0, 4, 4, 1000);
  scene.queued = {job(1, 8, 10)};
  EXPECT_THAT(started(ask("strict", scene.view())), ElementsAre());
  EXPECT_THAT(started(ask("spread", scene.view())), ElementsAre(1));
}

TEST(Philly, SpreadsWhereWaitingCostsMoreThanTheSlowdown) {
  Scene scene;
  scene.run(0, 4, 0, 150);  // node 0 is whole again in 50 s
  scene.run(9, 0, 4, 10000);
  scene.queued = {job(1, 8, 1000, 0.5, 100)};  // spreading would cost 1000 s more
  const auto waits = ask("philly", scene.view());
  EXPECT_THAT(started(waits), ElementsAre());
  EXPECT_EQ(waits.chosen.wake_s, 100 + 500);    // half of its run time
  scene.queued = {job(1, 8, 1000, 0.99, 100)};  // 10 s more
  EXPECT_THAT(started(ask("philly", scene.view())), ElementsAre(1));
}

TEST(Srtf, PreemptsTheLongestForShorterOnes) {
  Scene scene;
  scene.run(0, 8, 0, 5000);
  scene.run(1, 0, 8, 200);
  scene.queued = {job(2, 8, 60)};
  const auto decision = ask("srtf", scene.view());
  EXPECT_THAT(decision.chosen.preempt, ElementsAre(0));
  EXPECT_THAT(started(decision), ElementsAre(2));
}

TEST(Las, JobsThatHadAnHourOfGpuYieldToFreshOnes) {
  Scene scene;
  scene.run(0, 8, 0, 5000);
  scene.run(1, 0, 8, 5000);
  scene.running_jobs[0].attained_gpu_s = 4000;
  scene.queued = {job(2, 8, 100000)};
  EXPECT_THAT(ask("las", scene.view(0)).chosen.preempt, ElementsAre(0));
}

TEST(MakePolicy, ListsTheKnownOnes) {
  const auto policy = make_policy("fifi");
  ASSERT_FALSE(policy);
  EXPECT_THAT(policy.error().message, testing::HasSubstr("fifo, backfill, srtf"));
}

// A slow, obvious search agrees with the bitmaps on 2,000 random clusters: compact places
// exist exactly when enough whole nodes and a fitting rest do.
TEST(FreeNodes, PlacesAGangExactlyWhenOneExists) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Rng rng(seed, RngUse::kTest);
    std::vector<std::int32_t> size(1 + rng.next_below(100)), free(size.size());
    std::int32_t total = 0;
    for (std::size_t n = 0; n < size.size(); ++n) {
      size[n] = 8;
      free[n] = static_cast<std::int32_t>(rng.next_below(9));
      total += free[n];
    }
    const auto gpus = static_cast<std::int32_t>(1 + rng.next_below(40));
    const FreeNodes nodes(size, free);
    const auto whole = gpus / 8, rest = gpus % 8;
    const auto full = std::count(free.begin(), free.end(), 8);
    bool rest_fits = rest == 0 || full > whole;
    for (const auto f : free) rest_fits = rest_fits || (f >= rest && f < 8);
    for (const Locality locality : {Locality::kCompact, Locality::kAny}) {
      const auto shares = nodes.place(gpus, locality);
      const bool possible = locality == Locality::kAny ? gpus <= total : full >= whole && rest_fits;
      EXPECT_EQ(!shares.empty(), possible) << "seed " << seed;
      std::int32_t sum = 0;
      for (const NodeShare& s : shares) {
        EXPECT_LE(s.gpus, free[static_cast<std::size_t>(s.node)]);
        sum += s.gpus;
      }
      EXPECT_EQ(sum, shares.empty() ? 0 : gpus);
      if (!shares.empty() && locality == Locality::kCompact) {
        EXPECT_TRUE(is_compact(shares.size(), gpus, 8));
      }
    }
  }
}

}  // namespace
}  // namespace weft::sched
