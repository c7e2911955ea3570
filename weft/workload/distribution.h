// Distributions of gaps, lengths and counts: fitting by maximum likelihood, judging,
// drawing. A Distribution is a value that a fit file holds and a generator draws from.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/base/rng.h"

namespace weft::workload {

enum class Family {
  kExponential,       // a = mean
  kGamma,             // a = shape, b = scale
  kWeibull,           // a = shape, b = scale
  kLognormal,         // a = mu, b = sigma of the logarithm
  kHyperexponential,  // weights and means of up to 3 exponentials, in `table`
  kZipf,              // a = theta, b = cap: P(k) ~ k^-theta on 1 ... cap
  kGeometric,         // a = p: P(k) = p (1-p)^(k-1), k >= 1
  kNegativeBinomial,  // a = r, b = p: counts from 0, mean r (1-p) / p
  kQuantiles,         // 101 empirical quantiles in `table`, linear between
  kConstant,          // a
};
std::string_view to_string(Family family);

struct Distribution {
  Family family = Family::kConstant;
  double a = 0, b = 0;
  std::vector<double> table;  // kHyperexponential: w1, m1, w2, m2, ...; kQuantiles

  double mean() const;
  double variance() const;
  double cdf(double x) const;
  double log_density(double x) const;  // of the density or probability; not for kQuantiles
  // One draw by the coordinates of `rng`; moves it on by a varying number of draws.
  double draw(Rng& rng) const;
  // Free parameters, for AIC.
  int parameters() const;
  // The same form with its mean multiplied; not for discrete families.
  Distribution scaled(double factor) const;

  Json json() const;
  static Result<Distribution> from_json(const Json& json);
  // "gamma:shape=0.5,mean=2", "weibull:shape=..,scale=..", "exponential:mean=..",
  // "lognormal:mu=..,sigma=..", "zipf:theta=1.1,max=1024", "geometric:mean=..", "fixed:12".
  static Result<Distribution> parse(std::string_view text);
};

// Estimators. Each gives nothing where the sample cannot carry it: fewer than 2 values,
// a value outside the support (zeros are left out by gamma, weibull and lognormal, as
// their likelihood has no value there), or no spread.
std::optional<Distribution> fit_exponential(std::span<const double> x);
// Newton on ln a - digamma(a) = ln mean - mean ln, from the start of Minka (2002).
std::optional<Distribution> fit_gamma(std::span<const double> x);
std::optional<Distribution> fit_gamma_moments(std::span<const double> x);  // shape = 1 / CV^2
std::optional<Distribution> fit_weibull(std::span<const double> x);
std::optional<Distribution> fit_lognormal(std::span<const double> x);
// EM for `components` (2 or 3) exponentials, started at quantile groups.
std::optional<Distribution> fit_hyperexponential(std::span<const double> x, int components);
// Discrete maximum likelihood of theta for whole values 1 ... cap (the largest value).
std::optional<Distribution> fit_zipf(std::span<const double> x);
std::optional<Distribution> fit_geometric(std::span<const double> x);
// By moments; needs variance above the mean.
std::optional<Distribution> fit_negative_binomial(std::span<const double> x);
std::optional<Distribution> fit_quantiles(std::span<const double> x);

// A fitted distribution and how well it fits.
struct Fit {
  Distribution distribution;
  double log_likelihood = 0;
  double aic = 0;
  double ks = 0;    // distance to the sample
  double ks_p = 0;  // asymptotic; too high, as the sample fitted itself
  Json json() const;
};
std::optional<Fit> judge(std::optional<Distribution> distribution, std::span<const double> x);

// All families that make sense for gaps (or lengths), the lowest AIC first.
std::vector<Fit> fit_gaps(std::span<const double> gaps_s);
std::vector<Fit> fit_lengths(std::span<const double> tokens);

}  // namespace weft::workload
