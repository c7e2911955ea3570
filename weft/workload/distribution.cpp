#include "weft/workload/distribution.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>

#include "weft/workload/field_text.h"
#include "weft/workload/special_functions.h"
#include "weft/workload/stats.h"

namespace weft::workload {
namespace {

struct FamilyText {
  Family family;
  std::string_view name, a, b;
};
constexpr FamilyText kFamilies[] = {
    {Family::kExponential, "exponential", "mean", ""},
    {Family::kGamma, "gamma", "shape", "scale"},
    {Family::kWeibull, "weibull", "shape", "scale"},
    {Family::kLognormal, "lognormal", "mu", "sigma"},
    {Family::kHyperexponential, "hyperexponential", "", ""},
    {Family::kZipf, "zipf", "theta", "max"},
    {Family::kGeometric, "geometric", "p", ""},
    {Family::kNegativeBinomial, "negative-binomial", "r", "p"},
    {Family::kQuantiles, "quantiles", "", ""},
    {Family::kConstant, "fixed", "value", ""},
};

const FamilyText& text_of(Family family) {
  return *std::ranges::find(kFamilies, family, &FamilyText::family);
}

double harmonic(double theta, double cap) {
  double sum = 0;
  for (double k = 1; k <= cap; ++k) sum += std::pow(k, -theta);
  return sum;
}

// A uniform in (0, 1]: its logarithm is finite.
double open_uniform(Rng& rng) {
  const double high = rng.next_bits() >> 5, low = rng.next_bits() >> 6;
  return (high * 67108864.0 + low + 1) * 0x1p-53;
}

double draw_normal(Rng& rng) {
  const double u = open_uniform(rng), v = open_uniform(rng);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
}

// Marsaglia and Tsang (2000); below shape 1 by Gamma(a) = Gamma(a + 1) U^(1/a).
double draw_gamma(Rng& rng, double shape) {
  if (shape < 1) {
    const double boost = std::pow(open_uniform(rng), 1 / shape);
    return draw_gamma(rng, shape + 1) * boost;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double z = draw_normal(rng);
    const double v = std::pow(1 + c * z, 3);
    if (v <= 0) continue;
    if (std::log(open_uniform(rng)) < 0.5 * z * z + d - d * v + d * std::log(v)) return d * v;
  }
}

// Rejection-inversion (Hörmann and Derflinger 1996): no table, any cap.
double draw_zipf(Rng& rng, double theta, double cap) {
  const auto integral = [&](double x) {
    return std::abs(theta - 1) < 1e-12 ? std::log(x) : (std::pow(x, 1 - theta) - 1) / (1 - theta);
  };
  const auto inverse = [&](double y) {
    return std::abs(theta - 1) < 1e-12
               ? std::exp(y)
               : std::pow(std::max(0.0, 1 + y * (1 - theta)), 1 / (1 - theta));
  };
  const double low = integral(1.5) - 1, high = integral(cap + 0.5);
  for (;;) {
    const double u = high + open_uniform(rng) * (low - high);
    const double k = std::clamp(std::floor(inverse(u) + 0.5), 1.0, cap);
    if (u >= integral(k + 0.5) - std::pow(k, -theta)) return k;
  }
}

double draw_poisson(Rng& rng, double mean) {
  // By exponential gaps in pieces, so that exp(-mean) does not vanish.
  double count = 0;
  while (mean > 30) {  // Gamma(m) is the time of the m-th arrival
    const double m = std::floor(mean * 7 / 8);
    const double time = draw_gamma(rng, m);
    if (time > mean) {
      // Binomial(m - 1, mean / time) arrivals lie before `mean`.
      for (double i = 0; i < m - 1; ++i) count += open_uniform(rng) <= mean / time;
      return count;
    }
    count += m;
    mean -= time;
  }
  const double limit = std::exp(-mean);
  for (double product = open_uniform(rng); product > limit; product *= open_uniform(rng)) ++count;
  return count;
}

}  // namespace

std::string_view to_string(Family family) { return text_of(family).name; }

double Distribution::mean() const {
  switch (family) {
    case Family::kExponential:
    case Family::kConstant:
      return a;
    case Family::kGamma:
      return a * b;
    case Family::kWeibull:
      return b * std::exp(log_gamma(1 + 1 / a));
    case Family::kLognormal:
      return std::exp(a + b * b / 2);
    case Family::kHyperexponential: {
      double sum = 0;
      for (std::size_t i = 0; i + 1 < table.size(); i += 2) sum += table[i] * table[i + 1];
      return sum;
    }
    case Family::kZipf:
      return harmonic(a - 1, b) / harmonic(a, b);
    case Family::kGeometric:
      return 1 / a;
    case Family::kNegativeBinomial:
      return a * (1 - b) / b;
    case Family::kQuantiles: {
      double sum = 0;
      for (std::size_t i = 1; i < table.size(); ++i) sum += (table[i - 1] + table[i]) / 2;
      return sum / static_cast<double>(table.size() - 1);
    }
  }
  return 0;
}

double Distribution::variance() const {
  const double m = mean();
  switch (family) {
    case Family::kConstant:
      return 0;
    case Family::kExponential:
      return a * a;
    case Family::kGamma:
      return a * b * b;
    case Family::kWeibull:
      return b * b * std::exp(log_gamma(1 + 2 / a)) - m * m;
    case Family::kLognormal:
      return (std::exp(b * b) - 1) * m * m;
    case Family::kHyperexponential: {
      double second = 0;
      for (std::size_t i = 0; i + 1 < table.size(); i += 2)
        second += 2 * table[i] * table[i + 1] * table[i + 1];
      return second - m * m;
    }
    case Family::kZipf:
      return harmonic(a - 2, b) / harmonic(a, b) - m * m;
    case Family::kGeometric:
      return (1 - a) / (a * a);
    case Family::kNegativeBinomial:
      return a * (1 - b) / (b * b);
    case Family::kQuantiles: {
      double second = 0;
      for (std::size_t i = 1; i < table.size(); ++i) {
        const double x = table[i - 1], y = table[i];
        second += (x * x + x * y + y * y) / 3;
      }
      return second / static_cast<double>(table.size() - 1) - m * m;
    }
  }
  return 0;
}

double Distribution::cdf(double x) const {
  switch (family) {
    case Family::kConstant:
      return x >= a ? 1 : 0;
    case Family::kExponential:
      return x <= 0 ? 0 : -std::expm1(-x / a);
    case Family::kGamma:
      return x <= 0 ? 0 : gamma_p(a, x / b);
    case Family::kWeibull:
      return x <= 0 ? 0 : -std::expm1(-std::pow(x / b, a));
    case Family::kLognormal:
      return x <= 0 ? 0 : normal_cdf((std::log(x) - a) / b);
    case Family::kHyperexponential: {
      if (x <= 0) return 0;
      double sum = 0;
      for (std::size_t i = 0; i + 1 < table.size(); i += 2)
        sum += table[i] * -std::expm1(-x / table[i + 1]);
      return sum;
    }
    case Family::kZipf:
      return x < 1 ? 0 : harmonic(a, std::min(std::floor(x), b)) / harmonic(a, b);
    case Family::kGeometric:
      return x < 1 ? 0 : 1 - std::pow(1 - a, std::floor(x));
    case Family::kNegativeBinomial: {
      double sum = 0;
      for (double k = 0; k <= std::floor(x); ++k) sum += std::exp(log_density(k));
      return std::min(1.0, sum);
    }
    case Family::kQuantiles: {
      if (x < table.front()) return 0;
      if (x >= table.back()) return 1;
      const auto above = std::ranges::upper_bound(table, x);
      const auto i = static_cast<double>(above - table.begin() - 1);
      const double low = *(above - 1), part = (x - low) / (*above - low);
      return (i + part) / static_cast<double>(table.size() - 1);
    }
  }
  return 0;
}

double Distribution::log_density(double x) const {
  switch (family) {
    case Family::kExponential:
      return -std::log(a) - x / a;
    case Family::kGamma:
      return (a - 1) * std::log(x) - x / b - log_gamma(a) - a * std::log(b);
    case Family::kWeibull:
      return std::log(a / b) + (a - 1) * std::log(x / b) - std::pow(x / b, a);
    case Family::kLognormal: {
      const double z = (std::log(x) - a) / b;
      return -std::log(x) - std::log(b) - 0.5 * std::log(2 * M_PI) - z * z / 2;
    }
    case Family::kHyperexponential: {
      double sum = 0;
      for (std::size_t i = 0; i + 1 < table.size(); i += 2)
        sum += table[i] / table[i + 1] * std::exp(-x / table[i + 1]);
      return std::log(sum);
    }
    case Family::kZipf:
      return -a * std::log(x) - std::log(harmonic(a, b));
    case Family::kGeometric:
      return std::log(a) + (x - 1) * std::log1p(-a);
    case Family::kNegativeBinomial:
      return log_gamma(x + a) - log_gamma(a) - log_gamma(x + 1) + a * std::log(b) +
             x * std::log1p(-b);
    default:
      return 0;
  }
}

double Distribution::draw(Rng& rng) const {
  switch (family) {
    case Family::kConstant:
      return a;
    case Family::kExponential:
      return -a * std::log(open_uniform(rng));
    case Family::kGamma:
      return b * draw_gamma(rng, a);
    case Family::kWeibull:
      return b * std::pow(-std::log(open_uniform(rng)), 1 / a);
    case Family::kLognormal:
      return std::exp(a + b * draw_normal(rng));
    case Family::kHyperexponential: {
      double u = open_uniform(rng);
      std::size_t i = 0;
      while (i + 3 < table.size() && u > table[i]) u -= table[i], i += 2;
      return -table[i + 1] * std::log(open_uniform(rng));
    }
    case Family::kZipf:
      return draw_zipf(rng, a, b);
    case Family::kGeometric:
      return a >= 1 ? 1 : 1 + std::floor(std::log(open_uniform(rng)) / std::log1p(-a));
    case Family::kNegativeBinomial:
      return draw_poisson(rng, draw_gamma(rng, a) * (1 - b) / b);
    case Family::kQuantiles: {
      const double rank = (1 - open_uniform(rng)) * static_cast<double>(table.size() - 1);
      return quantile_sorted(table, rank / static_cast<double>(table.size() - 1));
    }
  }
  return 0;
}

int Distribution::parameters() const {
  switch (family) {
    case Family::kConstant:
    case Family::kExponential:
    case Family::kGeometric:
      return 1;
    case Family::kHyperexponential:
      return static_cast<int>(table.size()) - 1;
    case Family::kQuantiles:
      return static_cast<int>(table.size());
    default:
      return 2;
  }
}

Distribution Distribution::scaled(double factor) const {
  Distribution out = *this;
  switch (family) {
    case Family::kExponential:
    case Family::kConstant:
      out.a *= factor;
      break;
    case Family::kGamma:
    case Family::kWeibull:
      out.b *= factor;
      break;
    case Family::kLognormal:
      out.a += std::log(factor);
      break;
    case Family::kHyperexponential:
      for (std::size_t i = 1; i < out.table.size(); i += 2) out.table[i] *= factor;
      break;
    case Family::kQuantiles:
      for (double& value : out.table) value *= factor;
      break;
    default:
      WEFT_CHECK(false, "{} has no scale", to_string(family));
  }
  return out;
}

Json Distribution::json() const {
  const FamilyText& text = text_of(family);
  Json out = {{"family", text.name}};
  if (!text.a.empty()) out[std::string(text.a)] = a;
  if (!text.b.empty()) out[std::string(text.b)] = b;
  if (!table.empty()) out["table"] = table;
  return out;
}

namespace {

// What makes a distribution usable: finite parameters in their ranges.
Status check(const Distribution& d) {
  const auto bad = [&](std::string_view what) {
    return fail(ErrorCode::kOutOfRange, "{}: {}", to_string(d.family), what);
  };
  for (const double v : {d.a, d.b})
    if (!std::isfinite(v)) return bad("a parameter is not finite");
  for (const double v : d.table)
    if (!std::isfinite(v)) return bad("a table value is not finite");
  switch (d.family) {
    case Family::kExponential:
      if (d.a <= 0) return bad("the mean must be above 0");
      break;
    case Family::kGamma:
    case Family::kWeibull:
      if (d.a <= 0 || d.b <= 0) return bad("shape and scale must be above 0");
      if (d.a < 1e-3) return bad("a shape below 0.001 has no usable draws");
      break;
    case Family::kLognormal:
      if (d.b < 0 || d.b > 20 || std::abs(d.a) > 100) return bad("sigma in 0 ... 20, |mu| <= 100");
      break;
    case Family::kZipf:
      if (d.a < 0 || d.a > 20 || d.b < 1 || d.b > 16'777'216)
        return bad("theta in 0 ... 20, max in 1 ... 16777216");
      break;
    case Family::kGeometric:
      if (d.a <= 0 || d.a > 1) return bad("p must be in (0, 1]");
      break;
    case Family::kNegativeBinomial:
      if (d.a <= 0 || d.b <= 0 || d.b >= 1) return bad("r above 0 and p in (0, 1)");
      break;
    case Family::kHyperexponential: {
      if (d.table.size() < 2 || d.table.size() > 6 || d.table.size() % 2 != 0)
        return bad("the table holds 1 to 3 pairs of weight and mean");
      double sum = 0;
      for (std::size_t i = 0; i < d.table.size(); i += 2) {
        if (d.table[i] < 0 || d.table[i + 1] <= 0) return bad("weights >= 0, means > 0");
        sum += d.table[i];
      }
      if (std::abs(sum - 1) > 1e-6) return bad("the weights must add up to 1");
      break;
    }
    case Family::kQuantiles:
      if (d.table.size() < 2 || !std::ranges::is_sorted(d.table))
        return bad("the table holds at least 2 ascending quantiles");
      break;
    case Family::kConstant:
      if (d.a < 0) return bad("the value must not be negative");
      break;
  }
  return {};
}

}  // namespace

Result<Distribution> Distribution::from_json(const Json& json) {
  WEFT_ASSIGN(const std::string name, json_field<std::string>(json, "family"));
  const auto text = std::ranges::find(kFamilies, name, &FamilyText::name);
  if (text == std::end(kFamilies)) {
    return fail(ErrorCode::kInvalidArgument, "\"family\" is '{}', which is none of Weft's", name);
  }
  Distribution out{.family = text->family, .table = {}};
  if (!text->a.empty()) {
    WEFT_ASSIGN(out.a, json_field<double>(json, text->a));
  }
  if (!text->b.empty()) {
    WEFT_ASSIGN(out.b, json_field<double>(json, text->b));
  }
  if (const Json* table = json_find(json, "table")) {
    if (!table->is_array()) return fail(ErrorCode::kInvalidArgument, "\"table\" is no list");
    for (const Json& value : *table) {
      if (!value.is_number()) return fail(ErrorCode::kInvalidArgument, "\"table\" holds no number");
      out.table.push_back(value.get<double>());
    }
  }
  WEFT_TRY(check(out));
  return out;
}

Result<Distribution> Distribution::parse(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto family = std::ranges::find(kFamilies, name, &FamilyText::name);
  if (family == std::end(kFamilies) || family->a.empty()) {
    return fail(
        ErrorCode::kInvalidArgument,
        "'{}' names no distribution; there are exponential:mean=..., gamma:shape=...,mean=..., "
        "weibull:shape=...,mean=..., lognormal:mu=...,sigma=..., zipf:theta=...,max=..., "
        "geometric:mean=..., fixed:N",
        text);
  }
  std::map<std::string, double, std::less<>> values;
  std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    const auto equals = item.find('=');
    const std::string_view key =
        equals == std::string_view::npos ? "value" : item.substr(0, equals);
    double value = 0;
    if (!parse_double(equals == std::string_view::npos ? item : item.substr(equals + 1), value)) {
      return fail(ErrorCode::kInvalidArgument, "'{}' in '{}' is no number", item, text);
    }
    values[std::string(key)] = value;
  }
  Distribution out{.family = family->family, .table = {}};
  const auto take = [&](std::string_view key, double& value) {
    const auto found = values.find(key);
    if (found == values.end()) return false;
    value = found->second;
    values.erase(found);
    return true;
  };
  double mean = 0;
  const bool has_mean = family->a != "mean" && take("mean", mean);
  const bool has_a = take(family->a, out.a);
  const bool has_b = family->b.empty() || take(family->b, out.b);
  const std::string parts =
      fmt::format("{}{}{}", family->a, family->b.empty() ? "" : " and ", family->b);
  if (!values.empty()) {
    return fail(ErrorCode::kInvalidArgument, "'{}' in '{}' is not a parameter of {} ({})",
                values.begin()->first, text, name, parts);
  }
  if (has_mean && family->family == Family::kGeometric && !has_a) {
    out.a = mean >= 1 ? 1 / mean : 0;
  } else if (has_mean && has_a && !has_b &&
             (family->family == Family::kGamma || family->family == Family::kWeibull)) {
    out.b = 1;
    if (out.a > 0) out.b = mean / out.mean();
  } else if (has_mean || !has_a || !has_b) {
    return fail(ErrorCode::kInvalidArgument, "'{}': {} takes {}{}", text, name, parts,
                family->b == "scale" ? " (or mean for scale)" : "");
  }
  WEFT_TRY(check(out));
  return out;
}

}  // namespace weft::workload
