#include "weft/rl/kl.h"

#include <algorithm>
#include <cmath>

namespace weft::rl {
namespace {
constexpr double kLimit = 10.0;
}

std::string_view to_string(KlEstimator estimator) {
  switch (estimator) {
    case KlEstimator::kK1:
      return "k1";
    case KlEstimator::kK2:
      return "k2";
    case KlEstimator::kK3:
      return "k3";
  }
  return "?";
}

KlTerm kl_term(KlEstimator estimator, double logp, double logp_reference) {
  const double d = logp - logp_reference;
  KlTerm term{};
  switch (estimator) {
    case KlEstimator::kK1:
      term = {d, 1.0};
      break;
    case KlEstimator::kK2:
      term = {0.5 * d * d, d};
      break;
    case KlEstimator::kK3: {
      // expm1 keeps the digits that exp(-d) + d - 1 loses near d = 0.
      const double e = std::expm1(-d);
      term = {e + d, -e};
      break;
    }
  }
  if (term.value > kLimit) return {kLimit, 0.0};
  if (term.value < -kLimit) return {-kLimit, 0.0};
  return term;
}

double adapt_kl_coefficient(double beta, double measured, double target, double samples,
                            double horizon) {
  const double error = std::clamp(measured / target - 1.0, -0.2, 0.2);
  return beta * (1.0 + error * samples / horizon);
}

}  // namespace weft::rl
