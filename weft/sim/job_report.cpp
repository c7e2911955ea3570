#include "weft/sim/job_report.h"

#include <algorithm>
#include <cmath>

#include "weft/base/html.h"
#include "weft/base/units.h"
#include "weft/workload/special_functions.h"

namespace weft::sim {
namespace {

Estimate estimate(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  if (values.empty()) return {};
  double mean = 0, square = 0;
  for (const double v : values) mean += v / n;
  for (const double v : values) square += (v - mean) * (v - mean);
  if (values.size() < 2) return {mean, 0};
  const double t = workload::student_quantile_two_sided(0.05, n - 1);
  return {mean, t * std::sqrt(square / (n - 1) / n)};
}

std::string with_interval(const Estimate& e, int decimals) {
  if (e.half_width == 0) return fmt::format("{:.{}f}", e.mean, decimals);
  return fmt::format("{:.{}f} ±{:.{}f}", e.mean, decimals, e.half_width, decimals);
}

const char* colour(std::size_t i) {
  constexpr const char* kColours[] = {"#4a7fb5", "#c0504d", "#6aa84f", "#8e6bb8",
                                      "#d98c2b", "#45a5a5", "#777"};
  return kColours[i % 7];
}

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

// A line plot with axes from 0 to the largest value, x in `x_unit`.
std::string plot(const std::string& title, const std::string& x_unit,
                 const std::vector<Series>& series, bool log_x) {
  constexpr double kWidth = 900, kHeight = 260, kLeft = 60, kBottom = 30, kTop = 24;
  double x_low = 1e300, x_high = -1e300, y_high = 0;
  const auto scale = [&](double x) { return log_x ? std::log10(std::max(x, 1.0)) : x; };
  for (const Series& s : series) {
    for (const auto& [x, y] : s.points) {
      x_low = std::min(x_low, scale(x));
      x_high = std::max(x_high, scale(x));
      y_high = std::max(y_high, y);
    }
  }
  if (!(x_high > x_low)) x_high = x_low + 1;
  if (y_high <= 0) y_high = 1;
  const auto px = [&](double x) {
    return kLeft + (scale(x) - x_low) / (x_high - x_low) * (kWidth - kLeft - 10);
  };
  const auto py = [&](double y) {
    return kHeight - kBottom - y / y_high * (kHeight - kBottom - kTop);
  };
  std::string out = fmt::format(
      "<h3>{}</h3><svg width=\"{}\" height=\"{}\" font-size=\"11\" font-family=\"sans-serif\">",
      escape_html(title), kWidth, kHeight);
  for (int i = 0; i <= 4; ++i) {
    const double y = y_high * i / 4;
    out += fmt::format(
        "<path d=\"M{:.0f} {:.1f}H{:.0f}\" stroke=\"#ddd\"/><text x=\"{:.0f}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>",
        kLeft, py(y), kWidth - 10, kLeft - 4, py(y) + 4, human_count(y));
    const double at = x_low + (x_high - x_low) * i / 4, x = log_x ? std::pow(10, at) : at;
    out +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"{}\">{}</text>",
                    kLeft + (kWidth - kLeft - 10) * i / 4, kHeight - 12, i == 4 ? "end" : "middle",
                    x_unit == "s" ? human_duration(x) : human_count(x) + " " + x_unit);
  }
  for (std::size_t s = 0; s < series.size(); ++s) {
    std::string path;
    for (const auto& [x, y] : series[s].points) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", px(x), py(y));
    }
    out += fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.4\"/><text x=\"{:.0f}\" "
        "y=\"14\" fill=\"{}\">{}</text>",
        path, colour(s), kLeft + 110 * static_cast<double>(s), colour(s),
        escape_html(series[s].name));
  }
  return out + "</svg>\n";
}

struct Column {
  const char* name;
  Estimate PolicyRow::* value;
  int decimals;
  double factor;
};
constexpr Column kColumns[] = {
    {"mean JCT s", &PolicyRow::mean_jct_s, 0, 1},   {"p99 JCT s", &PolicyRow::p99_jct_s, 0, 1},
    {"mean wait s", &PolicyRow::mean_wait_s, 0, 1}, {"makespan s", &PolicyRow::makespan_s, 0, 1},
    {"busy %", &PolicyRow::utilisation, 1, 100},    {"queue", &PolicyRow::mean_queue, 1, 1},
    {"preempted", &PolicyRow::preemptions, 0, 1},   {"speed-up", &PolicyRow::speedup, 2, 1}};

Estimate times(const Estimate& e, double factor) {
  return {e.mean * factor, e.half_width * factor};
}

}  // namespace

std::vector<PolicyRow> compare_policies(const std::vector<Json>& rows,
                                        const std::vector<std::string>& policies) {
  std::vector<PolicyRow> table;
  WEFT_CHECK(!policies.empty() && rows.size() % policies.size() == 0);
  const std::size_t seeds = rows.size() / policies.size();
  for (std::size_t p = 0; p < policies.size(); ++p) {
    PolicyRow row;
    row.policy = policies[p];
    row.seeds = static_cast<int>(seeds);
    const auto collect = [&](const char* key) {
      std::vector<double> values;
      for (std::size_t s = 0; s < seeds; ++s)
        values.push_back(rows[p * seeds + s].at(key).get<double>());
      return values;
    };
    row.mean_jct_s = estimate(collect("mean_jct_s"));
    row.p99_jct_s = estimate(collect("p99_jct_s"));
    row.mean_wait_s = estimate(collect("mean_wait_s"));
    row.makespan_s = estimate(collect("makespan_s"));
    row.utilisation = estimate(collect("utilisation"));
    row.mean_queue = estimate(collect("mean_queue"));
    row.preemptions = estimate(collect("preemptions"));
    std::vector<double> ratios;
    double capacity = 0, fragmentation = 0, ordering = 0;
    for (std::size_t s = 0; s < seeds; ++s) {
      const Json& mine = rows[p * seeds + s];
      const double own = mine.at("mean_jct_s").get<double>();
      ratios.push_back(own > 0 ? rows[s].at("mean_jct_s").get<double>() / own : 0);
      capacity += mine.at("delay_s").at("capacity").get<double>();
      fragmentation += mine.at("delay_s").at("fragmentation").get<double>();
      ordering += mine.at("delay_s").at("ordering").get<double>();
    }
    row.speedup = estimate(ratios);
    if (const double sum = capacity + fragmentation + ordering; sum > 0) {
      row.capacity_share = capacity / sum;
      row.fragmentation_share = fragmentation / sum;
      row.ordering_share = ordering / sum;
    }
    table.push_back(std::move(row));
  }
  return table;
}

Json to_json(const std::vector<PolicyRow>& table) {
  Json list = Json::array();
  for (const PolicyRow& row : table) {
    Json one = {{"policy", row.policy}, {"seeds", row.seeds}};
    for (const Column& column : kColumns) {
      one[column.name] = {{"mean", (row.*column.value).mean},
                          {"ci95", (row.*column.value).half_width}};
    }
    one["delay_shares"] = {{"capacity", row.capacity_share},
                           {"fragmentation", row.fragmentation_share},
                           {"ordering", row.ordering_share}};
    list.push_back(std::move(one));
  }
  return list;
}

std::string table_text(const std::vector<PolicyRow>& table) {
  std::string out = fmt::format("{:<10}", "policy");
  for (const Column& column : kColumns) out += fmt::format(" {:>16}", column.name);
  out += "\n";
  bool delays = false;
  for (const PolicyRow& row : table) {
    out += fmt::format("{:<10}", row.policy);
    for (const Column& column : kColumns) {
      const std::string cell =
          with_interval(times(row.*column.value, column.factor), column.decimals);
      const bool wide = cell.find("±") != std::string::npos;  // two bytes, one column
      out += fmt::format(" {:>{}}", cell, wide ? 17 : 16);
    }
    out += "\n";
    delays = delays || row.capacity_share + row.fragmentation_share + row.ordering_share > 0;
  }
  for (const PolicyRow& row : table) {
    if (!delays) break;
    out += fmt::format(
        "{}: of the waiting, {:.1f} % for capacity, {:.1f} % for fragmentation, {:.1f} % for "
        "jobs before it or the round\n",
        row.policy, 100 * row.capacity_share, 100 * row.fragmentation_share,
        100 * row.ordering_share);
  }
  return out;
}

std::string job_report_html(const workload::JobTrace& trace,
                            const std::vector<JobSimReport>& reports,
                            const std::vector<SimJob>& jobs, const std::vector<PolicyRow>& table) {
  std::string out = fmt::format(
      "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><title>weft sim "
      "sched</title><style>body{{font-family:"
      "sans-serif;margin:24px;max-width:960px}}td,th{{padding:3px "
      "10px;text-align:right;border-bottom:1px solid "
      "#ddd}}</style></head><body><h1>Queue policies on {}</h1><p>{} jobs, simulated. Intervals "
      "are 95 % over "
      "seeds; plots show the first seed.</p><table><tr><th>policy</th>",
      escape_html(trace.source), jobs.size());
  for (const Column& column : kColumns) out += fmt::format("<th>{}</th>", column.name);
  out += "</tr>";
  for (const PolicyRow& row : table) {
    out += fmt::format("<tr><td>{}</td>", escape_html(row.policy));
    for (const Column& column : kColumns) {
      out += fmt::format("<td>{}</td>",
                         with_interval(times(row.*column.value, column.factor), column.decimals));
    }
    out += "</tr>";
  }
  out += "</table>\n";
  std::vector<Series> queue, busy, cdf;
  for (const JobSimReport& report : reports) {
    Series q{report.policy, {}}, b{report.policy, {}}, c{report.policy, {}};
    for (const auto& sample : report.timeline) {
      q.points.emplace_back(sample.time_s, sample.queued);
      b.points.emplace_back(sample.time_s, sample.busy);
    }
    std::vector<double> jct;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (report.jobs[i].finish_s >= 0) jct.push_back(report.jobs[i].finish_s - jobs[i].submit_s);
    }
    std::sort(jct.begin(), jct.end());
    const std::size_t step = std::max<std::size_t>(1, jct.size() / 400);
    for (std::size_t i = 0; i < jct.size(); i += step) {
      c.points.emplace_back(jct[i],
                            100.0 * static_cast<double>(i + 1) / static_cast<double>(jct.size()));
    }
    queue.push_back(std::move(q));
    busy.push_back(std::move(b));
    cdf.push_back(std::move(c));
  }
  out += plot("Jobs waiting", "s", queue, false) + plot("GPUs busy", "s", busy, false) +
         plot("Completion time, % of jobs", "s", cdf, true);
  return out + "</body></html>\n";
}

}  // namespace weft::sim
