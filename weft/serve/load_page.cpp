// The HTML page of a load test.
#include <algorithm>
#include <cmath>

#include "weft/base/chart.h"
#include "weft/base/file.h"
#include "weft/base/html.h"
#include "weft/serve/load_report.h"

namespace weft::serve {
namespace {

constexpr int kCurvePoints = 250;
constexpr std::size_t kDots = 1500;  // a scatter shows no more

std::string tile(const std::string& value, std::string_view what) {
  return fmt::format("<div class=tile><b>{}</b><span>{}</span></div>", value, what);
}

std::string ms(double seconds) { return short_number(seconds * 1000) + " ms"; }

ChartSeries cdf(std::string name, std::vector<double> values, int color) {
  ChartSeries out{.name = std::move(name), .x = {}, .y = {}, .color = color};
  std::ranges::sort(values);
  for (int i = 0; i <= kCurvePoints && !values.empty(); ++i) {
    const double q = static_cast<double>(i) / kCurvePoints;
    out.x.push_back(1000 * workload::quantile_sorted(values, q));
    out.y.push_back(q);
  }
  return out;
}

Chart latency_chart(const LoadRun& run) {
  std::vector<double> ttft, uncorrected, e2e;
  for (const LoadRecord& r : run.records) {
    if (!r.warm || r.outcome != LoadOutcome::kOk) continue;
    ttft.push_back(r.ttft_s());
    uncorrected.push_back(r.ttft_from_send_s());
    e2e.push_back(r.e2e_s());
  }
  Chart chart{.title = "Latency", .unit = "share at or below", .series = {}, .y_max = 1};
  chart.x_label = "ms";
  chart.log_x = true;
  chart.last_values = false;
  chart.series = {cdf("TTFT", std::move(ttft), 0), cdf("from sending", std::move(uncorrected), 4),
                  cdf("end to end", std::move(e2e), 1)};
  return chart;
}

Chart token_chart(const LoadRun& run) {
  std::vector<double> itl, tpot;
  for (const LoadRecord& r : run.records) {
    if (!r.warm || r.outcome != LoadOutcome::kOk) continue;
    itl.insert(itl.end(), r.gaps_s.begin(), r.gaps_s.end());
    if (r.completion_tokens > 1) tpot.push_back(r.tpot_s());
  }
  Chart chart{.title = "Between tokens", .unit = "share at or below", .series = {}, .y_max = 1};
  chart.x_label = "ms";
  chart.log_x = true;
  chart.last_values = false;
  chart.series = {cdf("ITL", std::move(itl), 0), cdf("TPOT", std::move(tpot), 2)};
  return chart;
}

Chart ttft_over_time(const LoadRun& run) {
  Chart chart{.title = "Time to first token", .unit = "ms, by intended time", .series = {}};
  ChartSeries dots{.name = "TTFT", .x = {}, .y = {}, .color = 0};
  std::vector<const LoadRecord*> order;
  for (const LoadRecord& r : run.records)
    if (r.outcome == LoadOutcome::kOk) order.push_back(&r);
  std::ranges::sort(order, {}, &LoadRecord::intended_ns);
  const std::size_t step = std::max<std::size_t>(1, order.size() / kDots);
  for (std::size_t i = 0; i < order.size(); i += step) {
    dots.x.push_back(static_cast<double>(order[i]->intended_ns) / 1e9);
    dots.y.push_back(order[i]->ttft_s() * 1000);
  }
  dots.points = dots.x.size() <= 400;  // more dots than that are a line
  chart.series.push_back(std::move(dots));
  chart.x_label = "seconds";
  chart.log_y = true;
  chart.last_values = false;
  return chart;
}

Chart throughput_chart(const LoadRun& run) {
  const double width = std::max(1.0, run.wall_s / 200);
  const auto bins = static_cast<std::size_t>(run.wall_s / width) + 1;
  ChartSeries asked{.name = "intended", .x = {}, .y = std::vector<double>(bins, 0), .color = 4};
  ChartSeries done{.name = "answered", .x = {}, .y = std::vector<double>(bins, 0), .color = 2};
  ChartSeries failed{.name = "failed", .x = {}, .y = std::vector<double>(bins, 0), .color = 3};
  for (std::size_t i = 0; i < bins; ++i) {
    for (ChartSeries* series : {&asked, &done, &failed})
      series->x.push_back((static_cast<double>(i) + 0.5) * width);
  }
  const auto count = [&](ChartSeries& series, std::int64_t ns) {
    if (ns < 0) return;
    series.y[std::min(bins - 1, static_cast<std::size_t>(static_cast<double>(ns) / 1e9 / width))] +=
        1 / width;
  };
  for (const LoadRecord& r : run.records) {
    count(asked, r.intended_ns);
    count(r.outcome == LoadOutcome::kOk ? done : failed, r.end_ns);
  }
  Chart chart{.title = "Requests", .unit = "a second", .series = {}, .from_zero = true};
  chart.series = {std::move(asked), std::move(done), std::move(failed)};
  chart.x_label = "seconds";
  chart.last_values = false;
  return chart;
}

Chart concurrency_chart(const LoadRun& run) {
  ChartSeries line{.name = "in flight", .x = {}, .y = {}, .color = 1};
  for (const auto& [time, count] : run.concurrency) {
    line.x.push_back(time);
    line.y.push_back(count);
  }
  Chart chart{
      .title = "Requests in flight", .unit = "", .series = {std::move(line)}, .from_zero = true};
  chart.x_label = "seconds";
  chart.last_values = false;
  return chart;
}

}  // namespace

Status write_load_page(const LoadReport& report, const LoadRun& run,
                       const std::filesystem::path& path) {
  const StageReport& w = report.whole;
  std::string html = fmt::format(
      "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
      "content=\"width=device-width,initial-scale=1\"><title>weft load · {}</title><style>{}"
      "pre{{white-space:pre-wrap;margin:0;font:13px ui-monospace,Menlo,monospace}}</style><main>"
      "<h1>Load on {}</h1><p class=lead>{} · {} requests · latencies count from the intended time "
      "of each request</p><div class=tiles>",
      escape_html(report.target), page_style(), escape_html(report.target),
      escape_html(report.mode), w.requests);
  html += tile(ms(w.ttft_s.summary.p50), "TTFT p50") + tile(ms(w.ttft_s.summary.p99), "TTFT p99") +
          tile(ms(w.itl_s.summary.p99), "ITL p99") +
          tile(short_number(w.output_rate), "output tokens/s") +
          tile(short_number(w.achieved_rate), "requests/s answered") +
          tile(fmt::format("{}", w.requests - w.ok), "failed");
  if (!report.slo.empty()) {
    html += tile(fmt::format("{:.1f} %", 100 * w.attainment), "met the SLO") +
            tile(short_number(w.goodput), "goodput, requests/s");
  }
  html += "</div><h2>Curves</h2><div class=charts>" + chart_html(ttft_over_time(run)) +
          chart_html(latency_chart(run)) + chart_html(throughput_chart(run)) +
          chart_html(token_chart(run)) + chart_html(concurrency_chart(run)) + "</div>";
  html += fmt::format("<h2>Figures</h2><table><tr><td><pre>{}</pre></td></tr></table>",
                      escape_html(report.text()));
  html += "<footer>Written by weft load.</footer></main></html>\n";
  return write_file_atomic(path, html);
}

}  // namespace weft::serve
