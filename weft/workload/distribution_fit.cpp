// Estimators and the judgement of fits.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "weft/workload/distribution.h"
#include "weft/workload/special_functions.h"
#include "weft/workload/stats.h"

namespace weft::workload {
namespace {

// A shape beyond this means a clock or a constant, not a Gamma or Weibull.
constexpr double kMaxShape = 100;
// Of expectation-maximisation, which creeps near its end: by then the third digit stands.
constexpr int kMaxIterations = 300;

struct Moments {
  double n = 0, mean = 0, variance = 0;
};

Moments moments_of(std::span<const double> x) {
  Moments m;
  m.n = static_cast<double>(x.size());
  if (x.empty()) return m;
  m.mean = std::accumulate(x.begin(), x.end(), 0.0) / m.n;
  for (const double v : x) m.variance += (v - m.mean) * (v - m.mean);
  m.variance /= m.n;
  return m;
}

std::vector<double> above_zero(std::span<const double> x) {
  std::vector<double> out;
  std::ranges::copy_if(x, std::back_inserter(out), [](double v) { return v > 0; });
  return out;
}

double mean_log(std::span<const double> x) {
  double sum = 0;
  for (const double v : x) sum += std::log(v);
  return sum / static_cast<double>(x.size());
}

// Whole values with their counts: discrete likelihoods need no more.
std::map<double, double> counted(std::span<const double> x) {
  std::map<double, double> counts;
  for (const double v : x) counts[v] += 1;
  return counts;
}

}  // namespace

std::optional<Distribution> fit_exponential(std::span<const double> x) {
  const Moments m = moments_of(x);
  if (x.size() < 2 || !(m.mean > 0)) return std::nullopt;
  return Distribution{.family = Family::kExponential, .a = m.mean, .table = {}};
}

std::optional<Distribution> fit_gamma(std::span<const double> values) {
  const auto x = above_zero(values);
  if (x.size() < 2) return std::nullopt;
  const double mean = moments_of(x).mean;
  const double s = std::log(mean) - mean_log(x);
  if (!(s > 1e-12)) return std::nullopt;  // all equal
  double shape = (3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s);
  for (int i = 0; i < 100; ++i) {
    const double step = (std::log(shape) - digamma(shape) - s) / (1 / shape - trigamma(shape));
    const double next = shape - step > 0 ? shape - step : shape / 2;
    const bool done = std::abs(next - shape) < 1e-12 * shape;
    shape = next;
    if (done) break;
  }
  if (!std::isfinite(shape) || shape > kMaxShape) return std::nullopt;
  return Distribution{.family = Family::kGamma, .a = shape, .b = mean / shape, .table = {}};
}

std::optional<Distribution> fit_gamma_moments(std::span<const double> x) {
  const Moments m = moments_of(x);
  if (x.size() < 2 || !(m.variance > 0) || !(m.mean > 0)) return std::nullopt;
  const double shape = m.mean * m.mean / m.variance;
  if (shape > kMaxShape) return std::nullopt;
  return Distribution{.family = Family::kGamma, .a = shape, .b = m.mean / shape, .table = {}};
}

// The shape solves sum x^k ln x / sum x^k - 1/k = mean ln x, whose left side grows with
// k: safeguarded Newton inside a bracket. Values are scaled by their largest, so that
// powers do not overflow.
std::optional<Distribution> fit_weibull(std::span<const double> values) {
  auto x = above_zero(values);
  if (x.size() < 2) return std::nullopt;
  const double largest = *std::ranges::max_element(x);
  std::vector<double> logs;
  for (const double v : x) logs.push_back(std::log(v / largest));
  const double mean =
      std::accumulate(logs.begin(), logs.end(), 0.0) / static_cast<double>(logs.size());
  if (!(mean < -1e-12)) return std::nullopt;  // all equal
  double low = 1e-3, high = kMaxShape, shape = 1, power = 0;
  for (int i = 0; i < 200; ++i) {
    double s0 = 0, s1 = 0, s2 = 0;
    for (const double l : logs) {
      const double p = std::exp(shape * l);
      s0 += p;
      s1 += p * l;
      s2 += p * l * l;
    }
    power = s0;
    const double value = s1 / s0 - 1 / shape - mean;
    const double slope = s2 / s0 - (s1 / s0) * (s1 / s0) + 1 / (shape * shape);
    (value > 0 ? high : low) = shape;
    double next = shape - value / slope;
    if (!(next > low && next < high)) next = (low + high) / 2;
    const bool done = std::abs(next - shape) < 1e-12 * shape;
    shape = next;
    if (done) break;
  }
  if (shape > 0.99 * kMaxShape) return std::nullopt;
  const double scale = largest * std::pow(power / static_cast<double>(logs.size()), 1 / shape);
  return Distribution{.family = Family::kWeibull, .a = shape, .b = scale, .table = {}};
}

std::optional<Distribution> fit_lognormal(std::span<const double> values) {
  auto x = above_zero(values);
  if (x.size() < 2) return std::nullopt;
  for (double& v : x) v = std::log(v);
  const Moments m = moments_of(x);
  if (!(m.variance > 1e-18)) return std::nullopt;
  return Distribution{
      .family = Family::kLognormal, .a = m.mean, .b = std::sqrt(m.variance), .table = {}};
}

std::optional<Distribution> fit_hyperexponential(std::span<const double> values, int components) {
  WEFT_CHECK(components == 2 || components == 3, "{} components", components);
  std::vector<double> x(values.begin(), values.end());
  std::ranges::sort(x);
  const auto k = static_cast<std::size_t>(components);
  if (x.size() < 10 * k || !(x.back() > 0) || x.front() < 0) return std::nullopt;
  // Start: the upper tenth and hundredth as their own components.
  std::array<double, 3> weight{}, mean{};
  const std::array<double, 4> cuts =
      k == 2 ? std::array<double, 4>{0, 0.9, 1, 1} : std::array<double, 4>{0, 0.7, 0.98, 1};
  const double floor_mean = std::max(x.back() * 1e-12, 1e-12);
  for (std::size_t c = 0; c < k; ++c) {
    const auto n = static_cast<double>(x.size());
    const auto begin = static_cast<std::size_t>(cuts[c] * n);
    const auto end = std::max(begin + 1, static_cast<std::size_t>(cuts[c + 1] * n));
    weight[c] = static_cast<double>(end - begin) / n;
    mean[c] = std::max(floor_mean, moments_of(std::span(x).subspan(begin, end - begin)).mean);
  }
  double last = -INFINITY;
  for (int iteration = 0; iteration < kMaxIterations; ++iteration) {
    std::array<double, 3> sum{}, sum_x{};
    double likelihood = 0;
    for (const double v : x) {
      std::array<double, 3> part{};
      double total = 0;
      for (std::size_t c = 0; c < k; ++c)
        total += part[c] = weight[c] / mean[c] * std::exp(-v / mean[c]);
      if (total <= 0) {  // far in the tail: the largest mean takes it
        part[k - 1] = total = 1e-300;
      }
      likelihood += std::log(total);
      for (std::size_t c = 0; c < k; ++c) {
        sum[c] += part[c] / total;
        sum_x[c] += part[c] / total * v;
      }
    }
    for (std::size_t c = 0; c < k; ++c) {
      weight[c] = sum[c] / static_cast<double>(x.size());
      if (sum[c] > 1e-9) mean[c] = std::max(floor_mean, sum_x[c] / sum[c]);
    }
    if (likelihood - last < 1e-7 * std::abs(likelihood)) break;
    last = likelihood;
  }
  Distribution out{.family = Family::kHyperexponential, .table = {}};
  for (std::size_t c = 0; c < k; ++c) {
    out.table.push_back(weight[c]);
    out.table.push_back(mean[c]);
  }
  return out;
}

// The score E[ln k] under theta falls with theta: bisection on the sample's mean ln k.
std::optional<Distribution> fit_zipf(std::span<const double> x) {
  if (x.size() < 2) return std::nullopt;
  double cap = 1, sum = 0;
  for (const double v : x) {
    if (v < 1 || v != std::floor(v)) return std::nullopt;
    cap = std::max(cap, v);
    sum += std::log(v);
  }
  if (cap < 2 || cap > 16'777'216) return std::nullopt;
  const double target = sum / static_cast<double>(x.size());
  std::vector<double> logs(static_cast<std::size_t>(cap));
  for (std::size_t k = 0; k < logs.size(); ++k) logs[k] = std::log(static_cast<double>(k + 1));
  const auto expected = [&](double theta) {
    double weights = 0, weighted = 0;
    for (const double l : logs) {
      const double w = std::exp(-theta * l);
      weights += w;
      weighted += w * l;
    }
    return weighted / weights;
  };
  double low = 0, high = 20;
  if (expected(low) <= target) return std::nullopt;  // no more large values than small ones
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (expected(middle) > target ? low : high) = middle;
  }
  return Distribution{.family = Family::kZipf, .a = (low + high) / 2, .b = cap, .table = {}};
}

std::optional<Distribution> fit_geometric(std::span<const double> x) {
  if (x.size() < 2) return std::nullopt;
  for (const double v : x)
    if (v < 1 || v != std::floor(v)) return std::nullopt;
  return Distribution{.family = Family::kGeometric, .a = 1 / moments_of(x).mean, .table = {}};
}

std::optional<Distribution> fit_negative_binomial(std::span<const double> x) {
  const Moments m = moments_of(x);
  if (x.size() < 2 || !(m.variance > m.mean) || !(m.mean > 0)) return std::nullopt;
  for (const double v : x)
    if (v < 0 || v != std::floor(v)) return std::nullopt;
  const double p = m.mean / m.variance;
  return Distribution{
      .family = Family::kNegativeBinomial, .a = m.mean * p / (1 - p), .b = p, .table = {}};
}

std::optional<Distribution> fit_quantiles(std::span<const double> x) {
  if (x.size() < 2) return std::nullopt;
  std::vector<double> sorted(x.begin(), x.end());
  std::ranges::sort(sorted);
  Distribution out{.family = Family::kQuantiles, .table = {}};
  for (int i = 0; i <= 100; ++i) out.table.push_back(quantile_sorted(sorted, i / 100.0));
  return out;
}

Json Fit::json() const {
  return {{"distribution", distribution.json()},
          {"log_likelihood", log_likelihood},
          {"aic", aic},
          {"ks", ks},
          {"ks_p", ks_p}};
}

std::optional<Fit> judge(std::optional<Distribution> distribution, std::span<const double> x) {
  if (!distribution) return std::nullopt;
  Fit out{.distribution = *std::move(distribution)};
  const Distribution& d = out.distribution;
  const bool discrete = d.family == Family::kZipf || d.family == Family::kGeometric ||
                        d.family == Family::kNegativeBinomial;
  // What the estimator left out is left out here, so that likelihoods stay comparable.
  const auto used = d.family == Family::kNegativeBinomial ? std::vector<double>(x.begin(), x.end())
                                                          : above_zero(x);
  if (used.empty()) return std::nullopt;
  const auto counts = counted(used);
  if (d.family != Family::kQuantiles) {
    // Zipf's normaliser is a long sum: once, not for each value.
    const double first = d.log_density(counts.begin()->first);
    for (const auto& [value, count] : counts) {
      const double density = d.family == Family::kZipf
                                 ? first - d.a * (std::log(value) - std::log(counts.begin()->first))
                                 : d.log_density(value);
      out.log_likelihood += count * density;
    }
    out.aic = 2 * d.parameters() - 2 * out.log_likelihood;
  }
  const auto n = static_cast<double>(used.size());
  if (discrete) {
    // Both are steps at whole numbers: walk the sums up once.
    const auto last = static_cast<std::int64_t>(counts.rbegin()->first);
    const std::int64_t begin = d.family == Family::kNegativeBinomial ? 0 : 1;
    double model = 0, sample = 0;
    double log_p = d.log_density(static_cast<double>(begin));
    auto next = counts.begin();
    for (std::int64_t k = begin; k <= last; ++k) {
      const auto value = static_cast<double>(k);
      if (k > begin) {
        log_p = d.family == Family::kZipf ? log_p - d.a * (std::log(value) - std::log(value - 1))
                                          : d.log_density(value);
      }
      model += std::exp(log_p);
      if (next != counts.end() && next->first == value) sample += (next++)->second / n;
      out.ks = std::max(out.ks, std::abs(model - sample));
    }
  } else {
    std::vector<double> sorted = used;
    std::ranges::sort(sorted);
    out.ks = ks_distance(sorted, [&](double v) { return d.cdf(v); });
  }
  out.ks_p = ks_p_value(out.ks, n);
  return out;
}

namespace {

std::vector<Fit> judged(std::vector<std::optional<Distribution>> candidates,
                        std::span<const double> x) {
  std::vector<Fit> out;
  for (auto& candidate : candidates) {
    if (auto fit = judge(std::move(candidate), x)) out.push_back(*std::move(fit));
  }
  // Quantiles have no likelihood: they come last.
  std::ranges::stable_sort(out, [](const Fit& a, const Fit& b) {
    const bool qa = a.distribution.family == Family::kQuantiles;
    const bool qb = b.distribution.family == Family::kQuantiles;
    return qa != qb ? qb : a.aic < b.aic;
  });
  return out;
}

}  // namespace

std::vector<Fit> fit_gaps(std::span<const double> gaps_s) {
  return judged(
      {fit_gamma(gaps_s), fit_weibull(gaps_s), fit_exponential(gaps_s), fit_lognormal(gaps_s),
       fit_hyperexponential(gaps_s, 2), fit_hyperexponential(gaps_s, 3)},
      gaps_s);
}

std::vector<Fit> fit_lengths(std::span<const double> tokens) {
  const auto positive = above_zero(tokens);
  return judged({fit_lognormal(positive), fit_gamma(positive), fit_weibull(positive),
                 fit_zipf(positive), fit_quantiles(positive)},
                positive);
}

}  // namespace weft::workload
