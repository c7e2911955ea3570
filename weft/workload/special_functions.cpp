#include "weft/workload/special_functions.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "weft/base/result.h"

namespace weft::workload {
namespace {

constexpr double kTiny = 1e-300;

// Regularised incomplete beta function by its continued fraction (modified Lentz);
// Abramowitz and Stegun 26.5.8.
double beta_regularised(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - beta_regularised(b, a, 1 - x);
  const double front = std::exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * std::log(x) +
                                b * std::log1p(-x)) /
                       a;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (std::abs(d) < kTiny ? kTiny : d);
  double h = d;
  for (int m = 1; m <= 500; ++m) {
    const double m2 = 2.0 * m;
    for (const double term : {m * (b - m) * x / ((a + m2 - 1) * (a + m2)),
                              -(a + m) * (a + b + m) * x / ((a + m2) * (a + m2 + 1))}) {
      d = 1 + term * d;
      d = 1 / (std::abs(d) < kTiny ? kTiny : d);
      c = 1 + term / (std::abs(c) < kTiny ? kTiny : c);
      h *= c * d;
    }
    if (std::abs(c * d - 1) < 1e-15) break;
  }
  return front * h;
}

}  // namespace

double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

// Both by recurrence to x >= 10 and the asymptotic series (Abramowitz and Stegun 6.3.18
// and 6.4.12).
double digamma(double x) {
  WEFT_CHECK(x > 0, "digamma({})", x);
  double value = 0;
  while (x < 10) value -= 1 / x++;
  const double r = 1 / (x * x);
  return value + std::log(x) - 0.5 / x -
         r * (1.0 / 12 - r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r * (1.0 / 132)))));
}

double trigamma(double x) {
  WEFT_CHECK(x > 0, "trigamma({})", x);
  double value = 0;
  for (; x < 10; ++x) value += 1 / (x * x);
  const double r = 1 / (x * x);
  return value + 1 / x + r / 2 +
         r / x * (1.0 / 6 - r * (1.0 / 30 - r * (1.0 / 42 - r * (1.0 / 30 - r * (5.0 / 66)))));
}

// Series below a + 1, continued fraction above (Abramowitz and Stegun 6.5.29, 6.5.31).
double gamma_p(double a, double x) {
  WEFT_CHECK(a > 0 && x >= 0, "gamma_p({}, {})", a, x);
  if (x == 0) return 0;
  if (!std::isfinite(x)) return 1;
  const double front = std::exp(a * std::log(x) - x - log_gamma(a));
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (int n = 1; n < 100'000 && term > sum * 1e-16; ++n) sum += term *= x / (a + n);
    return front * sum;
  }
  double b = x + 1 - a, c = 1 / kTiny, d = 1 / b, h = d;
  for (int i = 1; i < 100'000; ++i) {
    const double an = -i * (i - a);
    b += 2;
    d = an * d + b;
    d = 1 / (std::abs(d) < kTiny ? kTiny : d);
    c = b + an / c;
    if (std::abs(c) < kTiny) c = kTiny;
    h *= c * d;
    if (std::abs(c * d - 1) < 1e-15) break;
  }
  return 1 - front * h;
}

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); }

// Bisection to the last bits that matter: rare, so its 200 steps do not.
double normal_quantile(double p) {
  WEFT_CHECK(p > 0 && p < 1, "normal_quantile({})", p);
  double low = -40, high = 40;
  for (int i = 0; i < 200 && high - low > 1e-15 * (1 + std::abs(low)); ++i) {
    const double middle = (low + high) / 2;
    (normal_cdf(middle) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

double student_two_sided(double t, double degrees) {
  return beta_regularised(degrees / 2, 0.5, degrees / (degrees + t * t));
}

double student_quantile_two_sided(double p, double degrees) {
  double low = 0, high = 1e6;
  for (int i = 0; i < 200 && high - low > 1e-13 * (1 + low); ++i) {
    const double middle = (low + high) / 2;
    (student_two_sided(middle, degrees) > p ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace weft::workload
