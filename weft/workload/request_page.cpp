#include "weft/workload/request_page.h"

#include <algorithm>
#include <cmath>

#include "weft/base/chart.h"
#include "weft/base/file.h"
#include "weft/base/html.h"
#include "weft/workload/request_info.h"
#include "weft/workload/stats.h"

namespace weft::workload {
namespace {

constexpr int kCurvePoints = 200;

// The empirical distribution at evenly spaced ranks.
ChartSeries cdf_series(std::string name, std::vector<double> values, int color) {
  ChartSeries out{.name = std::move(name), .x = {}, .y = {}, .color = color};
  std::ranges::sort(values);
  for (int i = 0; i <= kCurvePoints && !values.empty(); ++i) {
    const double q = static_cast<double>(i) / kCurvePoints;
    out.x.push_back(quantile_sorted(values, q));
    out.y.push_back(q);
  }
  return out;
}

ChartSeries fit_series(const Fit& fit, std::span<const double> xs, int color) {
  ChartSeries out{
      .name = std::string(to_string(fit.distribution.family)), .x = {}, .y = {}, .color = color};
  for (const double x : xs) {
    out.x.push_back(x);
    out.y.push_back(fit.distribution.cdf(x));
  }
  return out;
}

ChartSeries rate_series(const RequestTrace& trace, std::string name, int color) {
  ChartSeries out{.name = std::move(name), .x = {}, .y = {}, .color = color};
  const double span = trace.span_s();
  const double window = std::max(1.0, span / kCurvePoints);
  std::vector<double> counts(static_cast<std::size_t>(span / window) + 1, 0);
  for (const Request& row : trace.rows) {
    const double at = static_cast<double>(row.time_ns - trace.rows.front().time_ns) / kNsPerSecond;
    counts[std::min(counts.size() - 1, static_cast<std::size_t>(at / window))] += 1;
  }
  for (std::size_t i = 0; i + 1 < counts.size(); ++i) {
    out.x.push_back((static_cast<double>(i) + 0.5) * window);
    out.y.push_back(counts[i] / window);
  }
  return out;
}

ChartSeries dispersion_series(std::span<const double> times, std::string name, int color) {
  ChartSeries out{.name = std::move(name), .x = {}, .y = {}, .color = color};
  const double span = times.empty() ? 0 : times.back() - times.front();
  for (double window = 0.1; window < span / 8; window *= 1.5) {
    out.x.push_back(window);
    out.y.push_back(dispersion_index(times, window));
  }
  return out;
}

std::vector<double> turns_of(const RequestTrace& trace) {
  std::vector<double> turns(trace.sessions.size(), 0);
  for (const Request& row : trace.rows)
    if (row.session >= 0) ++turns[static_cast<std::size_t>(row.session)];
  std::erase(turns, 0.0);
  return turns;
}

std::string table(const std::vector<const RequestTrace*>& traces) {
  std::string html = "<table>";
  for (const RequestTrace* trace : traces) {
    const RequestInfo info = describe_requests(*trace);
    html += fmt::format("<tr><th>{}</th><td><pre>{}</pre></td></tr>", escape_html(trace->name),
                        escape_html(info_text(*trace, info)));
  }
  return html + "</table>";
}

}  // namespace

Status write_request_page(const std::vector<const RequestTrace*>& traces, const FitReport* fits,
                          const std::filesystem::path& path) {
  Chart rate{.title = "Arrivals", .unit = "requests/s", .series = {}, .from_zero = true};
  Chart gaps{.title = "Gaps between arrivals", .unit = "share at or below", .series = {}};
  Chart dispersion{.title = "Index of dispersion", .unit = "Var / mean of counts", .series = {}};
  Chart input{.title = "Input tokens", .unit = "share at or below", .series = {}};
  Chart output{.title = "Output tokens", .unit = "share at or below", .series = {}};
  Chart turns{.title = "Turns of a session", .unit = "share at or below", .series = {}};
  rate.x_label = gaps.x_label = dispersion.x_label = "seconds";
  dispersion.x_label = "window, seconds";
  input.x_label = output.x_label = "tokens";
  turns.x_label = "turns";
  gaps.log_x = dispersion.log_x = dispersion.log_y = input.log_x = output.log_x = turns.log_x =
      true;
  for (Chart* chart : {&rate, &gaps, &dispersion, &input, &output, &turns})
    chart->last_values = false;
  std::string names;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const RequestTrace& trace = *traces[i];
    const int color = static_cast<int>(i);
    const std::string name = std::filesystem::path(trace.name).filename().string();
    names += (names.empty() ? "" : ", ") + name;
    std::vector<double> in, out;
    for (const Request& row : trace.rows) {
      in.push_back(row.input_tokens);
      out.push_back(row.output_tokens);
    }
    input.series.push_back(cdf_series(name, std::move(in), color));
    output.series.push_back(cdf_series(name, std::move(out), color));
    auto counts = turns_of(trace);
    if (!counts.empty()) turns.series.push_back(cdf_series(name, std::move(counts), color));
    if (!trace.has_times || trace.rows.size() < 2) continue;
    const auto times = arrival_times_s(trace);
    rate.series.push_back(rate_series(trace, name, color));
    gaps.series.push_back(cdf_series(name, gaps_of(times), color));
    dispersion.series.push_back(dispersion_series(times, name, color));
  }
  if (fits != nullptr && !gaps.series.empty()) {
    const std::vector<double> xs = gaps.series.front().x;
    int color = 1;
    for (const Fit& fit : fits->gap_fits) {
      if (color > 3) break;
      gaps.series.push_back(fit_series(fit, xs, color++));
    }
  }
  std::string html = fmt::format(
      "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
      "content=\"width=device-width,initial-scale=1\"><title>weft trace · {}</title><style>{}"
      "pre{{white-space:pre-wrap;margin:0;font:13px ui-monospace,Menlo,monospace}}</style><main>"
      "<h1>{}</h1><p class=lead>Requests over time, their gaps, burstiness and lengths</p>"
      "<div class=charts>",
      escape_html(names), page_style(), escape_html(names));
  for (const Chart* chart : {&rate, &gaps, &dispersion, &input, &output, &turns})
    if (!chart->series.empty()) html += chart_html(*chart);
  html += "</div><h2>Figures</h2>" + table(traces);
  if (fits != nullptr) {
    html += fmt::format("<h2>Fits</h2><table><tr><td><pre>{}</pre></td></tr></table>",
                        escape_html(fits->text()));
  }
  html += "<footer>Written by weft trace.</footer></main></html>\n";
  return write_file_atomic(path, html);
}

}  // namespace weft::workload
