// Statistics of samples and of arrivals: what `weft trace info` prints and what fits
// are judged by. Pure functions; inputs are finite.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "weft/base/json.h"

namespace weft::workload {

// Quantile of an ascending sample, linear between ranks ((n - 1) q; type 7 of Hyndman
// and Fan 1996, numpy's default). 0 when empty.
double quantile_sorted(std::span<const double> sorted, double q);

struct Summary {
  std::int64_t count = 0;
  double mean = 0, std = 0;  // std with n - 1
  double min = 0, p1 = 0, p10 = 0, p25 = 0, p50 = 0, p75 = 0, p90 = 0, p95 = 0, p99 = 0, p999 = 0,
         max = 0;
  double cv() const { return mean > 0 ? std / mean : 0; }
  Json json() const;
};
Summary summarise(std::vector<double> values);

// Index of dispersion for counts, Var(N_T) / E(N_T) over windows of T seconds from the
// first arrival to the one that holds the last, which may be cut short; 1 for Poisson.
// `times_s` ascending. 0 with fewer than two windows.
double dispersion_index(std::span<const double> times_s, double window_s);

// Rank correlation with mid-ranks for ties; 0 for fewer than 2 or constant samples.
double spearman(std::span<const double> x, std::span<const double> y);
// Pearson correlation of a series with itself `lag` later.
double autocorrelation(std::span<const double> values, std::size_t lag);

// Kolmogorov-Smirnov distance of an ascending sample to a distribution. For discrete
// ones give the distribution at ties: both sides of each step are compared.
double ks_distance(std::span<const double> sorted, const std::function<double(double)>& cdf);
// Between two ascending samples.
double ks_distance(std::span<const double> sorted_a, std::span<const double> sorted_b);
// Probability of a distance at least this large under the hypothesis, asymptotic
// (Stephens 1970); too high where parameters were fitted to the same sample. For two
// samples give n = n_a n_b / (n_a + n_b).
double ks_p_value(double distance, double n);

// Gaps of a clock that ticks coarsely. Quantised: over a fifth of the gaps are 0, or under
// half of them are distinct while the least one is over a tenth of the mean gap. (The
// second condition lets millisecond clocks of slow arrivals pass, whose gaps repeat
// without harm.) Then gaps must not be fitted.
struct ClockCheck {
  bool quantised = false;
  double distinct_share = 0, zero_share = 0;
  double step_s = 0;  // the most frequent gap above 0, where quantised
};
ClockCheck check_clock(std::span<const double> gaps_s);

}  // namespace weft::workload
