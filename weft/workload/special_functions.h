// Functions that the fits need and the C++ library lacks. Relative error below 1e-12
// where the result is not near 0.
#pragma once

namespace weft::workload {

double log_gamma(double x);  // x > 0; safe from several threads
double digamma(double x);    // x > 0; derivative of log_gamma
double trigamma(double x);   // x > 0; the second derivative
// Regularised lower incomplete gamma function P(a, x), a > 0, x >= 0: the cdf of Gamma(a).
double gamma_p(double a, double x);
double normal_cdf(double z);
double normal_quantile(double p);  // p in (0, 1)
// Two-sided tail of Student's t with `degrees` of freedom: P(|T| >= |t|).
double student_two_sided(double t, double degrees);
// |t| that two-sided probability `p` belongs to.
double student_quantile_two_sided(double p, double degrees);

}  // namespace weft::workload
