// Estimators of KL(policy || reference) from one sampled token, and the
// controller that keeps the divergence near a target.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft::rl {

// With d = log pi - log pi_ref of the sampled token (Schulman, "Approximating KL
// divergence", 2020): k1 = d, k2 = d^2 / 2, k3 = exp(-d) + d - 1. Values are
// clamped to +-10; outside, the slope is 0.
enum class KlEstimator : std::uint8_t { kK1, kK2, kK3 };
std::string_view to_string(KlEstimator estimator);

struct KlTerm {
  double value;
  double slope;  // d value / d log pi
};
KlTerm kl_term(KlEstimator estimator, double logp, double logp_reference);

// beta <- beta (1 + clip(KL / target - 1, +-0.2) n / horizon), where n samples
// were used since the last update (Ziegler et al. 2019, section 2.2).
double adapt_kl_coefficient(double beta, double measured, double target, double samples,
                            double horizon);

}  // namespace weft::rl
