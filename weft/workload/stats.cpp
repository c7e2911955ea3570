#include "weft/workload/stats.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft::workload {

double quantile_sorted(std::span<const double> sorted, double q) {
  if (sorted.empty()) return 0;
  const double rank = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(rank);
  if (low + 1 >= sorted.size()) return sorted.back();
  return sorted[low] + (rank - static_cast<double>(low)) * (sorted[low + 1] - sorted[low]);
}

Json Summary::json() const {
  return {{"count", count}, {"mean", mean}, {"std", std}, {"cv", cv()},    {"min", min},
          {"p1", p1},       {"p10", p10},   {"p25", p25}, {"p50", p50},    {"p75", p75},
          {"p90", p90},     {"p95", p95},   {"p99", p99}, {"p99.9", p999}, {"max", max}};
}

Summary summarise(std::vector<double> values) {
  Summary out;
  out.count = static_cast<std::int64_t>(values.size());
  if (values.empty()) return out;
  std::ranges::sort(values);
  const auto n = static_cast<double>(values.size());
  out.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double v : values) squares += (v - out.mean) * (v - out.mean);
  out.std = values.size() > 1 ? std::sqrt(squares / (n - 1)) : 0;
  out.min = values.front();
  out.max = values.back();
  const auto q = [&](double share) { return quantile_sorted(values, share); };
  out.p1 = q(0.01), out.p10 = q(0.1), out.p25 = q(0.25), out.p50 = q(0.5), out.p75 = q(0.75);
  out.p90 = q(0.9), out.p95 = q(0.95), out.p99 = q(0.99), out.p999 = q(0.999);
  return out;
}

double dispersion_index(std::span<const double> times_s, double window_s) {
  if (times_s.size() < 2 || window_s <= 0) return 0;
  const double begin = times_s.front();
  const auto window_of = [&](double t) {
    return static_cast<std::int64_t>((t - begin) / window_s);
  };
  const std::int64_t windows = window_of(times_s.back()) + 1;
  if (windows < 2) return 0;
  double sum = 0, squares = 0;  // windows without arrivals add nothing to either
  for (std::size_t at = 0; at < times_s.size();) {
    const std::int64_t window = window_of(times_s[at]);
    double count = 0;
    while (at < times_s.size() && window_of(times_s[at]) == window) ++at, ++count;
    sum += count;
    squares += count * count;
  }
  const auto n = static_cast<double>(windows);
  const double mean = sum / n;
  return mean > 0 ? (squares / n - mean * mean) / mean : 0;
}

namespace {

std::vector<double> mid_ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i + 1;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (std::size_t k = i; k < end; ++k) ranks[order[k]] = static_cast<double>(i + end - 1) / 2;
    i = end;
  }
  return ranks;
}

double pearson(std::span<const double> x, std::span<const double> y) {
  const auto n = static_cast<double>(x.size());
  if (x.size() < 2) return 0;
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

}  // namespace

double spearman(std::span<const double> x, std::span<const double> y) {
  WEFT_CHECK(x.size() == y.size(), "{} and {}", x.size(), y.size());
  const auto rank_x = mid_ranks(x), rank_y = mid_ranks(y);
  return pearson(rank_x, rank_y);
}

double autocorrelation(std::span<const double> values, std::size_t lag) {
  if (values.size() < lag + 2) return 0;
  return pearson(values.first(values.size() - lag), values.subspan(lag));
}

double ks_distance(std::span<const double> sorted, const std::function<double(double)>& cdf) {
  const auto n = static_cast<double>(sorted.size());
  double worst = 0;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t end = i + 1;
    while (end < sorted.size() && sorted[end] == sorted[i]) ++end;
    const double model = cdf(sorted[i]);
    worst = std::max(worst, std::abs(static_cast<double>(end) / n - model));
    // Just below the value; for a continuous model its cdf there is the same.
    const double below = cdf(std::nextafter(sorted[i], -INFINITY));
    worst = std::max(worst, std::abs(static_cast<double>(i) / n - below));
    i = end;
  }
  return worst;
}

double ks_distance(std::span<const double> sorted_a, std::span<const double> sorted_b) {
  if (sorted_a.empty() || sorted_b.empty()) return sorted_a.empty() == sorted_b.empty() ? 0 : 1;
  double worst = 0;
  std::size_t a = 0, b = 0;
  while (a < sorted_a.size() && b < sorted_b.size()) {
    const double at = std::min(sorted_a[a], sorted_b[b]);
    while (a < sorted_a.size() && sorted_a[a] <= at) ++a;
    while (b < sorted_b.size() && sorted_b[b] <= at) ++b;
    worst =
        std::max(worst, std::abs(static_cast<double>(a) / static_cast<double>(sorted_a.size()) -
                                 static_cast<double>(b) / static_cast<double>(sorted_b.size())));
  }
  return worst;
}

double ks_p_value(double distance, double n) {
  if (n <= 0) return 1;
  const double root = std::sqrt(n);
  const double x = (root + 0.12 + 0.11 / root) * distance;
  if (x < 0.2) return 1;
  double sum = 0;
  for (int k = 1; k <= 100; ++k) {
    const double term = std::exp(-2.0 * k * k * x * x);
    sum += k % 2 == 1 ? term : -term;
    if (term < 1e-12) break;
  }
  return std::clamp(2 * sum, 0.0, 1.0);
}

ClockCheck check_clock(std::span<const double> gaps_s) {
  ClockCheck out;
  if (gaps_s.empty()) return out;
  std::vector<double> sorted(gaps_s.begin(), gaps_s.end());
  std::ranges::sort(sorted);
  std::size_t distinct = 0, best = 0;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t end = i + 1;
    while (end < sorted.size() && sorted[end] == sorted[i]) ++end;
    ++distinct;
    if (sorted[i] <= 0) {
      out.zero_share = static_cast<double>(end - i) / static_cast<double>(sorted.size());
    } else if (end - i > best) {
      best = end - i;
      out.step_s = sorted[i];
    }
    i = end;
  }
  out.distinct_share = static_cast<double>(distinct) / static_cast<double>(sorted.size());
  const auto least = std::ranges::upper_bound(sorted, 0.0);
  const double mean =
      std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(sorted.size());
  const bool coarse = least != sorted.end() && *least > 0.1 * mean;
  // A handful of gaps says nothing about the clock.
  out.quantised =
      sorted.size() >= 20 && (out.zero_share > 0.2 || (out.distinct_share < 0.5 && coarse));
  if (!out.quantised) out.step_s = 0;
  return out;
}

}  // namespace weft::workload
