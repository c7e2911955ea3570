// From a trace to its model.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "weft/base/rng.h"
#include "weft/workload/request_info.h"
#include "weft/workload/request_model.h"
#include "weft/workload/stats.h"

namespace weft::workload {
namespace {

constexpr std::size_t kPool = 65'536;       // rows or gaps that a model keeps
constexpr double kArrivalsPerWindow = 120;  // fewer make the rate mostly noise
// Shorter windows count short bursts twice, once in the rates and once in the blocks of gaps:
// at 60 s the Azure code trace comes out with 1.4 times its IDC(60 s), at 300 s with 0.86.
constexpr double kLeastWindow = 300, kMostWindow = 1200;
constexpr double kReportWindow = 1200;  // of the published fits

double choose_window(const FitOptions& options, double span, double rate) {
  if (options.window_s == 0) return span;
  if (options.window_s > 0) return std::min(options.window_s, span);
  return std::min(span, std::clamp(kArrivalsPerWindow / rate, kLeastWindow, kMostWindow));
}

// Requests in each window over what the window lasts. The last window is cut at the end
// of the trace and its rate taken over what is left of it.
std::vector<double> window_rates(std::span<const double> times, double window, double span) {
  const auto n = static_cast<std::size_t>(std::max(1.0, std::ceil(span / window - 1e-9)));
  std::vector<double> rates(n, 0);
  for (const double t : times) {
    const auto w = static_cast<std::size_t>((t - times.front()) / window);
    rates[std::min(w, n - 1)] += 1;
  }
  for (std::size_t w = 0; w < n; ++w) {
    const double length = std::min(window, span - static_cast<double>(w) * window);
    rates[w] /= std::max(length, window * 1e-3);
  }
  return rates;
}

// Gaps in operational time: the requests that the rate expects between two arrivals.
std::vector<double> operational_gaps(std::span<const double> times, double window,
                                     std::span<const double> rates) {
  std::vector<double> before(rates.size() + 1, 0);
  for (std::size_t w = 0; w < rates.size(); ++w) before[w + 1] = before[w] + rates[w] * window;
  const auto expected = [&](double t) {
    const double at = t - times.front();
    const auto w = std::min(static_cast<std::size_t>(at / window), rates.size() - 1);
    return before[w] + (at - static_cast<double>(w) * window) * rates[w];
  };
  std::vector<double> gaps;
  gaps.reserve(times.size());
  double last = expected(times.front());
  for (std::size_t i = 1; i < times.size(); ++i) {
    const double now = expected(times[i]);
    gaps.push_back(std::max(0.0, now - last));
    last = now;
  }
  return gaps;
}

// At most `n` of `values`, in runs of `run` so that neighbours stay together.
template <class T>
std::vector<T> thinned(std::vector<T> values, std::size_t n, std::size_t run, Rng rng) {
  if (values.size() <= n) return values;
  std::vector<T> out;
  while (out.size() + run <= n) {
    const std::size_t begin = rng.next_below(static_cast<std::uint32_t>(values.size() - run + 1));
    out.insert(out.end(), values.begin() + static_cast<std::ptrdiff_t>(begin),
               values.begin() + static_cast<std::ptrdiff_t>(begin + run));
  }
  return out;
}

std::vector<double> tick_counts(std::span<const double> times, double step) {
  std::vector<double> counts(static_cast<std::size_t>((times.back() - times.front()) / step + 1.5),
                             0);
  for (const double t : times) {
    counts[std::min(counts.size() - 1,
                    static_cast<std::size_t>((t - times.front()) / step + 0.5))] += 1;
  }
  return counts;
}

Status fit_arrivals(std::span<const double> times, const FitOptions& options, FitReport& report) {
  RequestModel& model = report.model;
  const double span = times.back() - times.front();
  const double rate = static_cast<double>(times.size()) / span;
  model.window_s = choose_window(options, span, rate);
  model.rates = window_rates(times, model.window_s, span);
  const auto raw = gaps_of(times);
  const ClockCheck clock = check_clock(raw);
  if (clock.quantised) {
    if (options.gaps != "auto") {
      return fail(ErrorCode::kInvalidArgument,
                  "the clock of this trace ticks every {:g} s ({:.0f} % of gaps are 0): gaps of it "
                  "must not be fitted; leave --gaps at auto",
                  clock.step_s, 100 * clock.zero_share);
    }
    model.gap_form = GapForm::kBatches;
    model.step_s = clock.step_s;
    const auto counts = tick_counts(times, clock.step_s);
    report.counts_fit = judge(fit_negative_binomial(counts), counts);
    report.notes.push_back(
        fmt::format("the clock ticks every {:g} s: batches are fitted, not gaps", clock.step_s));
    // Relative to the rate, so that a scaled rate scales the batches.
    std::vector<double> relative;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const auto w = std::min(
          model.rates.size() - 1,
          static_cast<std::size_t>(static_cast<double>(i) * clock.step_s / model.window_s));
      const double mean = model.rates[w] * clock.step_s;
      if (mean > 0) relative.push_back(counts[i] / mean);
    }
    const auto quantiles = fit_quantiles(relative);
    if (!quantiles) {
      return fail(ErrorCode::kInvalidArgument, "under 2 ticks of {:g} s: too short to fit",
                  clock.step_s);
    }
    model.batch = quantiles->scaled(1 / quantiles->mean());
    return {};
  }
  report.gap_fits = fit_gaps(raw);
  report.gamma_moments = fit_gamma_moments(raw);
  for (double begin = times.front(); begin < times.back(); begin += kReportWindow) {
    const auto first = std::ranges::lower_bound(times, begin);
    const auto last = std::ranges::lower_bound(times, begin + kReportWindow);
    const auto fit = fit_gamma(gaps_of(std::span(first, last)));
    report.window_gamma_shapes.push_back(fit ? fit->a : 0);
  }
  auto gaps = operational_gaps(times, model.window_s, model.rates);
  const auto use = [&](std::optional<Distribution> d, std::string_view name) -> Status {
    if (!d) {
      return fail(ErrorCode::kInvalidArgument, "the gaps of this trace do not fit a {}", name);
    }
    model.gap_form = GapForm::kDistribution;
    model.gaps = d->scaled(1 / d->mean());
    return {};
  };
  if (options.gaps == "exponential") return use(fit_exponential(gaps), options.gaps);
  if (options.gaps == "gamma") return use(fit_gamma(gaps), options.gaps);
  if (options.gaps == "weibull") return use(fit_weibull(gaps), options.gaps);
  if (options.gaps == "lognormal") return use(fit_lognormal(gaps), options.gaps);
  if (options.gaps == "hyperexponential") return use(fit_hyperexponential(gaps, 3), options.gaps);
  if (options.gaps != "auto" && options.gaps != "bootstrap") {
    return fail(ErrorCode::kInvalidArgument,
                "--gaps {} is none of auto, bootstrap, exponential, gamma, weibull, lognormal, "
                "hyperexponential",
                options.gaps);
  }
  // Too few gaps for blocks of them: the mixture.
  if (options.gaps == "auto" && gaps.size() < 1024) {
    if (auto mixture = fit_hyperexponential(gaps, 2)) return use(mixture, "hyperexponential");
    return use(fit_exponential(gaps), "exponential");
  }
  model.gap_form = GapForm::kBootstrap;
  model.gap_block = 256;
  const double mean =
      std::accumulate(gaps.begin(), gaps.end(), 0.0) / static_cast<double>(gaps.size());
  std::vector<float> pool;
  for (const double gap : gaps) pool.push_back(static_cast<float>(gap / mean));
  model.gap_pool = thinned(std::move(pool), kPool, 256, Rng(options.seed, RngUse::kData, 0, 10));
  return {};
}

void fit_token_lengths(const RequestTrace& trace, const FitOptions& options, FitReport& report) {
  std::vector<double> input, output;
  std::vector<LengthPair> rows;
  for (const Request& row : trace.rows) {
    if (row.input_tokens == 0) continue;  // nothing was asked
    if (row.failed) {
      input.push_back(row.input_tokens);
      continue;  // how long the answer would have been is unknown
    }
    input.push_back(row.input_tokens);
    output.push_back(row.output_tokens);
    rows.push_back({row.input_tokens, std::max(1U, row.output_tokens)});
  }
  report.input_fits = fit_lengths(input);
  report.output_fits = fit_lengths(output);
  RequestModel& model = report.model;
  if (options.lengths == "rows" && !rows.empty()) {
    model.length_pool = thinned(std::move(rows), kPool, 1, Rng(options.seed, RngUse::kData, 0, 11));
    return;
  }
  std::vector<double> x, y;
  for (const LengthPair& pair : rows) {
    x.push_back(pair.input);
    y.push_back(pair.output);
  }
  const Distribution one{.family = Family::kConstant, .a = 1, .table = {}};
  model.input = fit_quantiles(x).value_or(one);
  model.output = fit_quantiles(y).value_or(one);
  // Of a Gaussian copula with that rank correlation (Kruskal 1958).
  model.length_rho = 2 * std::sin(M_PI / 6 * spearman(x, y));
}

void fit_sessions(const RequestTrace& trace, FitReport& report) {
  const std::size_t n = trace.sessions.size();
  std::vector<double> turns(n, 0), last(n, 0), think, counts;
  double alone = 0;
  for (const Request& row : trace.rows) {
    if (row.session < 0) {
      ++alone;
      continue;
    }
    const auto s = static_cast<std::size_t>(row.session);
    if (turns[s]++ > 0) think.push_back(row.time_s() - last[s]);
    last[s] = row.time_s();
  }
  for (const double t : turns)
    if (t > 0) counts.push_back(t);
  if (counts.size() < 2) return;
  RequestModel& model = report.model;
  report.turns_fit = judge(fit_geometric(counts), counts);
  report.think_fit = judge(fit_lognormal(think), think);
  const auto sessions = static_cast<double>(counts.size());
  model.session_share = sessions / (sessions + alone);
  model.turns = fit_quantiles(counts).value_or(report.turns_fit->distribution);
  model.think_s = report.think_fit ? report.think_fit->distribution
                                   : Distribution{.family = Family::kConstant, .table = {}};
}

void fit_labels(const RequestTrace& trace, RequestModel& model) {
  std::vector<double> count(trace.labels.size(), 0), failed(trace.labels.size(), 0);
  for (const Request& row : trace.rows) {
    ++count[row.label];
    failed[row.label] += row.failed;
  }
  for (std::size_t i = 0; i < count.size(); ++i) {
    model.labels.emplace_back(trace.labels[i], count[i] / static_cast<double>(trace.rows.size()));
    model.label_failures.push_back(count[i] > 0 ? failed[i] / count[i] : 0);
  }
}

}  // namespace

Result<FitReport> fit_requests(const RequestTrace& trace, const FitOptions& options) {
  if (!trace.has_times || trace.rows.size() < 3 || !(trace.span_s() > 0)) {
    return fail(ErrorCode::kInvalidArgument,
                "{}: a fit needs at least 3 requests at different times", trace.name);
  }
  if (options.lengths != "rows" && options.lengths != "copula") {
    return fail(ErrorCode::kInvalidArgument, "--lengths {} is none of rows, copula",
                options.lengths);
  }
  FitReport report;
  report.model.source = trace.name;
  // The first turn of a session arrives by the rate; the others follow it.
  std::vector<double> times;
  std::vector<bool> open(trace.sessions.size(), false);
  for (const Request& row : trace.rows) {
    if (row.session >= 0) {
      if (open[static_cast<std::size_t>(row.session)]) continue;
      open[static_cast<std::size_t>(row.session)] = true;
    }
    times.push_back(row.time_s());
  }
  if (times.size() < 3 || !(times.back() > times.front())) {
    return fail(ErrorCode::kInvalidArgument, "{}: fewer than 3 conversations: too few to fit",
                trace.name);
  }
  WEFT_TRY(fit_arrivals(times, options, report));
  fit_token_lengths(trace, options, report);
  fit_sessions(trace, report);
  fit_labels(trace, report.model);
  if (trace.block_tokens > 0) {
    report.notes.emplace_back("prompt blocks are not fitted; `gen --block-tokens` makes its own");
  }
  return report;
}

}  // namespace weft::workload
