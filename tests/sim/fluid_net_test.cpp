// Max-min fair rates against worked examples and their definition; rings on a fabric.
#include "weft/sim/fluid_net.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/rng.h"
#include "weft/sim/fabric_sim.h"

namespace weft::sim {
namespace {

FlowSet flows_of(const std::vector<std::vector<std::int32_t>>& routes) {
  FlowSet flows;
  for (const auto& route : routes) flows.add(route);
  return flows;
}

TEST(FluidNet, SharesAsTheWorkedExamplesSay) {
  // A chain of two links: the flow over both gets its share of the fuller one.
  EXPECT_EQ(max_min_rates(std::vector{10.0, 30.0}, flows_of({{0}, {0, 1}, {1}})),
            (std::vector{5.0, 5.0, 25.0}));
  // Bertsekas & Gallager's five sessions over three links of capacity 1.
  const auto rates =
      max_min_rates(std::vector{1.0, 1.0, 1.0}, flows_of({{0, 1, 2}, {1}, {1}, {2}, {0}}));
  EXPECT_DOUBLE_EQ(rates[0], 1.0 / 3);
  EXPECT_DOUBLE_EQ(rates[1], 1.0 / 3);
  EXPECT_DOUBLE_EQ(rates[3], 2.0 / 3);
  EXPECT_DOUBLE_EQ(rates[4], 2.0 / 3);
  FlowSet weighted;
  weighted.add(std::vector<std::int32_t>{0}, 3);
  weighted.add(std::vector<std::int32_t>{0}, 1);
  EXPECT_EQ(max_min_rates(std::vector{8.0}, weighted), (std::vector{6.0, 2.0}));
  EXPECT_EQ(max_min_rates(std::vector{0.0}, flows_of({{0}})), (std::vector{0.0}));
  EXPECT_TRUE(std::isinf(max_min_rates({}, flows_of({{}}))[0]));
  EXPECT_TRUE(max_min_rates(std::vector{1.0}, {}).empty());
}

// Filling everything by small equal steps, link by link.
std::vector<double> filled(const std::vector<double>& capacity,
                           const std::vector<std::vector<std::int32_t>>& routes) {
  std::vector<double> left = capacity, rates(routes.size());
  std::vector<bool> stopped(routes.size());
  for (;;) {
    std::vector<int> active(capacity.size());
    for (std::size_t f = 0; f < routes.size(); ++f) {
      for (const auto l : routes[f]) active[static_cast<std::size_t>(l)] += stopped[f] ? 0 : 1;
    }
    double step = 1e300;
    for (std::size_t l = 0; l < capacity.size(); ++l) {
      if (active[l] > 0) step = std::min(step, left[l] / active[l]);
    }
    if (step > 1e299) return rates;
    for (std::size_t l = 0; l < capacity.size(); ++l) left[l] -= step * active[l];
    for (std::size_t f = 0; f < routes.size(); ++f) {
      if (stopped[f]) continue;
      rates[f] += step;
      for (const auto l : routes[f]) {
        if (left[static_cast<std::size_t>(l)] <= 1e-9 * capacity[static_cast<std::size_t>(l)]) {
          stopped[f] = true;
        }
      }
    }
  }
}

TEST(FluidNet, IsWhatFillingGives) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed, RngUse::kTest);
    std::vector<double> capacity;
    for (std::uint32_t l = 0; l < 1 + rng.next_below(12); ++l) {
      capacity.push_back(1 + rng.next_below(100));
    }
    std::vector<std::vector<std::int32_t>> routes;
    for (std::uint32_t f = 0; f < 1 + rng.next_below(40); ++f) {
      std::vector<std::int32_t> all(capacity.size());
      std::iota(all.begin(), all.end(), 0);
      for (std::size_t i = all.size(); i-- > 1;) {
        std::swap(all[i], all[rng.next_below(static_cast<std::uint32_t>(i + 1))]);
      }
      all.resize(1 +
                 rng.next_below(static_cast<std::uint32_t>(std::min<std::size_t>(all.size(), 4))));
      routes.push_back(all);
    }
    const auto rates = max_min_rates(capacity, flows_of(routes)),
               expected = filled(capacity, routes);
    for (std::size_t f = 0; f < rates.size(); ++f) {
      ASSERT_NEAR(rates[f], expected[f], 1e-6 * (1 + expected[f])) << "seed " << seed;
    }
  }
}

double mean_ecmp(const FabricSpec& spec) {
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto report = simulate_fabric(spec, PathPolicy::kEcmp, seed);
    EXPECT_TRUE(report);
    for (const double rate : report->job_gbps) sum += rate;
  }
  return sum / (20.0 * spec.jobs);
}

// C4's acceptance items 5 and 6 in the model.
TEST(FabricSim, PlannedPathsGiveOneJobItsPortsAndEightJobsEqualShares) {
  const FabricSpec one;
  const auto planned = simulate_fabric(one, PathPolicy::kPlanned, 0);
  ASSERT_TRUE(planned);
  EXPECT_GE(planned->job_gbps[0], 355);
  EXPECT_LE(planned->job_gbps[0], 362);
  const double hashed = mean_ecmp(one);
  EXPECT_LE(hashed, 240);
  EXPECT_GE(planned->job_gbps[0] / hashed, 1.5);

  FabricSpec eight{.jobs = 8};
  for (const double over : {1.0, 2.0}) {
    eight.oversubscription = over;
    const auto report = simulate_fabric(eight, PathPolicy::kPlanned, 0);
    ASSERT_TRUE(report);
    const auto [least, most] = std::ranges::minmax(report->job_gbps);
    EXPECT_LE(most - least, over == 1.0 ? 0.02 * most : 12.0);
    const double mean = std::accumulate(report->job_gbps.begin(), report->job_gbps.end(), 0.0) / 8;
    EXPECT_GE(mean / mean_ecmp(eight), over == 1.0 ? 1.6 : 1.5);
    const auto optimal = simulate_fabric(eight, PathPolicy::kOptimal, 0);
    ASSERT_TRUE(optimal);
    EXPECT_GE(std::ranges::min(optimal->job_gbps), 0.999 * least);
  }
}

// Item 7: one of eight uplinks fails.
TEST(FabricSim, FlowsOfABrokenUplinkArePlacedAnew) {
  FabricSpec spec{.jobs = 8, .broken = 1};
  const auto mean = [&](PathPolicy policy) {
    double sum = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const auto report = simulate_fabric(spec, policy, seed);
      EXPECT_TRUE(report);
      sum += std::ranges::min(report->job_gbps);
    }
    return sum / 20;
  };
  EXPECT_GE(mean(PathPolicy::kPlanned), 0.95 * 315);
  EXPECT_GT(mean(PathPolicy::kPlanned), mean(PathPolicy::kStatic));
  EXPECT_FALSE(simulate_fabric(spec, PathPolicy::kOptimal, 0));
}

TEST(FabricSim, RepeatsToTheBitAndRefusesWhatIsNoFabric) {
  const FabricSpec spec{.jobs = 4};
  for (const PathPolicy policy : {PathPolicy::kEcmp, PathPolicy::kPlanned, PathPolicy::kSpray}) {
    EXPECT_EQ(simulate_fabric(spec, policy, 3)->job_gbps,
              simulate_fabric(spec, policy, 3)->job_gbps);
  }
  const FabricSpec wrong[] = {{.nodes = 1}, {.nodes = 15}, {.lanes = 0},  {.oversubscription = 0},
                              {.jobs = 9},  {.broken = 8}, {.planes = 0}, {.port_gbps = -1}};
  for (const FabricSpec& each : wrong) {
    const auto report = simulate_fabric(each, PathPolicy::kPlanned, 0);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_FALSE(path_policy("magic"));
}

}  // namespace
}  // namespace weft::sim
