// Paths of flows: loads against their lower bound, health of links, repetition.
#include "weft/plan/traffic_policy.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "weft/base/rng.h"

namespace weft::plan {
namespace {

// Every NIC sends `lanes` flows to a NIC of another one: a permutation.
std::vector<FlowEnds> permutation(const cluster::LeafSpine& fabric, std::int32_t lanes, Rng& rng) {
  std::vector<std::int32_t> to;
  for (std::int32_t i = 0; i < fabric.nics(); ++i) to.push_back(i);
  for (std::size_t i = to.size(); i-- > 1;) {
    std::swap(to[i], to[rng.next_below(static_cast<std::uint32_t>(i + 1))]);
  }
  std::vector<FlowEnds> flows;
  for (std::int32_t nic = 0; nic < fabric.nics(); ++nic) {
    if (to[static_cast<std::size_t>(nic)] == nic) continue;
    flows.insert(flows.end(), static_cast<std::size_t>(lanes),
                 {nic, to[static_cast<std::size_t>(nic)]});
  }
  return flows;
}

cluster::LeafSpine random_fabric(Rng& rng) {
  return {.planes = 1 + static_cast<std::int32_t>(rng.next_below(3)),
          .leaves = 2 + static_cast<std::int32_t>(rng.next_below(8)),
          .spines = 1 + static_cast<std::int32_t>(rng.next_below(9)),
          .nics_per_leaf = 1 + static_cast<std::int32_t>(rng.next_below(9))};
}

TEST(TrafficPolicy, OptimumPutsNoMoreOnAnUplinkThanItsLeafMust) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed, RngUse::kTest);
    const cluster::LeafSpine fabric = random_fabric(rng);
    const auto lanes = 1 + static_cast<std::int32_t>(rng.next_below(8));
    const auto flows = permutation(fabric, lanes, rng);
    const auto paths = optimal_paths(fabric, flows);
    ASSERT_TRUE(paths) << "seed " << seed;
    TrafficLoads loads(fabric);
    std::vector<std::int32_t> degree(2 * static_cast<std::size_t>(fabric.planes * fabric.leaves));
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const FlowPath path = (*paths)[i];
      const std::int32_t from = fabric.leaf_of(flows[i].from), to = fabric.leaf_of(flows[i].to);
      ASSERT_EQ(path.spine < 0, from == to);
      ASSERT_LT(path.spine, fabric.spines);
      loads.add(fabric, flows[i], path, 1);
      if (from == to) continue;
      ++degree[static_cast<std::size_t>(2 * (path.plane * fabric.leaves + from))];
      ++degree[static_cast<std::size_t>(2 * (path.plane * fabric.leaves + to) + 1)];
    }
    const std::int32_t bound = (std::ranges::max(degree) + fabric.spines - 1) / fabric.spines;
    EXPECT_LE(loads.most_on_uplinks(), bound) << "seed " << seed;
    if (lanes % fabric.planes == 0) {  // then ports and planes can both be even
      EXPECT_LE(loads.most_on_uplinks(), least_uplink_load(fabric, flows) + 1) << "seed " << seed;
    }
  }
}

TEST(TrafficPolicy, GreedyIsWithinAQuarterOfTheBoundOnAverage) {
  double ratios = 0;
  constexpr int kSeeds = 100;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Rng rng(seed, RngUse::kTest);
    const cluster::LeafSpine fabric{.planes = 2, .leaves = 16, .spines = 8, .nics_per_leaf = 8};
    const auto flows = permutation(fabric, 8, rng);
    TrafficPlanner planner(fabric);
    for (const FlowEnds ends : flows) ASSERT_TRUE(planner.place(ends));
    ratios +=
        static_cast<double>(planner.loads().most_on_uplinks()) / least_uplink_load(fabric, flows);
  }
  EXPECT_LE(ratios / kSeeds, 1.25);
}

TEST(TrafficPolicy, LoadsAreThoseOfThePathsThroughBreaksAndRemovals) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Rng rng(seed, RngUse::kTest);
    cluster::LeafSpine fabric = random_fabric(rng);
    fabric.planes = 2;
    fabric.spines += 3;
    const auto flows = permutation(fabric, 3, rng);
    TrafficPlanner planner(fabric);
    for (const FlowEnds ends : flows) ASSERT_TRUE(planner.place(ends));
    std::vector<bool> gone(flows.size());
    for (int i = 0; i < 3; ++i) {
      const auto uplink =
          static_cast<std::int32_t>(rng.next_below(static_cast<std::uint32_t>(fabric.uplinks())));
      const auto moved = planner.break_uplink(uplink);
      ASSERT_TRUE(moved) << "seed " << seed;
      if (flows.empty()) continue;
      const auto flow = rng.next_below(static_cast<std::uint32_t>(flows.size()));
      if (!gone[flow]) planner.remove(static_cast<std::int32_t>(flow));
      gone[flow] = true;
    }
    TrafficLoads loads(fabric);
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (gone[i]) continue;
      const FlowPath path = planner.path(static_cast<std::int32_t>(i));
      loads.add(fabric, flows[i], path, 1);
      const std::int32_t from = fabric.leaf_of(flows[i].from), to = fabric.leaf_of(flows[i].to);
      if (path.spine >= 0) {
        EXPECT_TRUE(planner.fabric().works(path.plane, from, path.spine, to));
      }
    }
    EXPECT_EQ(loads.up, planner.loads().up) << "seed " << seed;
    EXPECT_EQ(loads.down, planner.loads().down);
    EXPECT_EQ(loads.out, planner.loads().out);
    EXPECT_EQ(loads.in, planner.loads().in);
  }
}

TEST(TrafficPolicy, EqualViewsGiveEqualDecisionsThatSayWhy) {
  const cluster::LeafSpine fabric{.planes = 2, .leaves = 2, .spines = 2, .nics_per_leaf = 2};
  TrafficLoads loads(fabric);
  const FlowEnds ends{0, 3};
  loads.add(fabric, ends, {0, 1}, 2);
  const auto first = decide({&fabric, &loads, ends}), second = decide({&fabric, &loads, ends});
  ASSERT_TRUE(first);
  EXPECT_EQ(first->chosen, second->chosen);
  EXPECT_EQ(first->reason, second->reason);
  EXPECT_EQ(first->chosen.plane, 1);
  EXPECT_EQ(*choose_path({&fabric, &loads, ends}), first->chosen);
  ASSERT_EQ(first->rejected.size(), 1U);
  EXPECT_NE(first->rejected[0].why.find("2 flows on the fuller port"), std::string::npos);
}

TEST(TrafficPolicy, RefusesWhatItCannotPlace) {
  cluster::LeafSpine fabric{.planes = 1, .leaves = 2, .spines = 1, .nics_per_leaf = 1};
  TrafficPlanner planner(fabric);
  EXPECT_EQ(planner.place({0, 0}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(planner.place({0, 2}).error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(planner.place({0, 1}));
  EXPECT_EQ(planner.break_uplink(9).error().code, ErrorCode::kInvalidArgument);
  const auto moved = planner.break_uplink(0);
  EXPECT_EQ(moved.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(planner.loads().most_on_uplinks(), 0);
  fabric.broken = {true, false};
  EXPECT_EQ(optimal_paths(fabric, {}).error().code, ErrorCode::kUnsupported);
  fabric.broken = {true};
  EXPECT_FALSE(check(fabric));
  fabric = {.planes = 0};
  EXPECT_NE(check(fabric).error().message.find("planes"), std::string::npos);
}

}  // namespace
}  // namespace weft::plan
