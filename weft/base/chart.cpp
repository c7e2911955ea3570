#include "weft/base/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "weft/base/html.h"
namespace weft {
namespace {

constexpr std::string_view kStyle = R"css(
:root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--ink:#1d1d1b;--soft:#6b6b66;--line:#e4e3df;
--c0:#2f6fde;--c1:#d9822b;--c2:#2c9a5b;--c3:#b0489f;--c4:#8a8a84;--good:#1f8a4c;--bad:#b3402f}
@media (prefers-color-scheme:dark){:root{--bg:#161614;--card:#1f1f1c;--ink:#ecebe6;--soft:#a09f98;
--line:#35342f;--c0:#6ea0ff;--c1:#f0a253;--c2:#5cc88a;--c3:#dc84cd;--c4:#9b9a92;--good:#62cf90;--bad:#ef8573}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:32px 20px 60px}h1{font-size:26px;margin:0 0 2px}
h2{font-size:18px;margin:38px 0 12px}.lead{color:var(--soft);margin:0 0 22px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px}
.tile,figure,table{background:var(--card);border:1px solid var(--line);border-radius:10px}
.tile{padding:12px 14px}.tile b{display:block;font-size:22px;font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:13px}.tile em{font-style:normal;color:var(--soft);font-size:15px;font-weight:400}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(430px,1fr));gap:14px}
@media (max-width:520px){.charts{grid-template-columns:1fr}}
figure{margin:0;padding:12px 14px 6px}figcaption{font-size:14px;display:flex;flex-wrap:wrap;gap:2px 10px;align-items:baseline}
.unit,.legend{color:var(--soft);font-size:12.5px}.legend{margin-left:auto}.key{margin-left:12px;white-space:nowrap}
.key b{font-weight:600;color:var(--ink);font-variant-numeric:tabular-nums}
.key i{display:inline-block;width:9px;height:9px;border-radius:2px;margin-right:5px}
svg{display:block;width:100%;height:auto}.grid{stroke:var(--line)}.tick{font-size:10.5px;fill:var(--soft)}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round}.thin{fill:none;stroke-width:1;opacity:.45}.area{opacity:.75}
path.c0{stroke:var(--c0)}path.c1{stroke:var(--c1)}path.c2{stroke:var(--c2)}path.c3{stroke:var(--c3)}path.c4{stroke:var(--c4)}
.area.c0,circle.c0,i.c0{fill:var(--c0);background:var(--c0)}.area.c1,circle.c1,i.c1{fill:var(--c1);background:var(--c1)}
.area.c2,circle.c2,i.c2{fill:var(--c2);background:var(--c2)}.area.c3,circle.c3,i.c3{fill:var(--c3);background:var(--c3)}
.area.c4,circle.c4,i.c4{fill:var(--c4);background:var(--c4)}.area{stroke:none!important}
table{border-collapse:separate;border-spacing:0;width:100%;overflow:hidden;font-size:14px}
th{text-align:left;color:var(--soft);font-weight:500}th,td{padding:7px 12px;border-top:1px solid var(--line);vertical-align:top}
tr:first-child th,tr:first-child td{border-top:0}td.text{white-space:pre-wrap;overflow-wrap:anywhere}
.good{color:var(--good)}.bad{color:var(--bad)}.num{font-variant-numeric:tabular-nums;white-space:nowrap}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(430px,1fr));gap:14px}
details summary{cursor:pointer;color:var(--soft)}code{font:13px ui-monospace,SFMono-Regular,Menlo,monospace}
.warn{border-left:4px solid var(--c1);padding:6px 12px;background:var(--card);margin:10px 0}
footer{color:var(--soft);font-size:13px;margin-top:40px}
)css";

constexpr double kWidth = 560, kHeight = 210;
constexpr double kLeft = 48, kRight = 10, kTop = 10, kBottom = 26;
constexpr std::size_t kMaxPoints = 280;

// Averages neighbours so that at most kMaxPoints remain.
ChartSeries thinned(const ChartSeries& s) {
  if (s.points || s.x.size() <= kMaxPoints) return s;
  ChartSeries t = s;
  t.x.clear();
  t.y.clear();
  for (std::size_t i = 0; i < kMaxPoints; ++i) {
    const std::size_t begin = i * s.x.size() / kMaxPoints, end = (i + 1) * s.x.size() / kMaxPoints;
    double x = 0, y = 0, n = 0;
    for (std::size_t k = begin; k < end; ++k) {
      if (!std::isfinite(s.y[k]) || !std::isfinite(s.x[k])) continue;
      x += s.x[k];
      y += s.y[k];
      n += 1;
    }
    t.x.push_back(n > 0 ? x / n : s.x[begin]);
    t.y.push_back(n > 0 ? y / n : NAN);
  }
  return t;
}

// A step of 1, 2 or 5 times a power of ten that gives about `count` ticks.
double tick_step(double range, int count) {
  const double raw = range / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) return factor * power;
  return 10 * power;
}

struct Range {
  double low = INFINITY, high = -INFINITY;
  void take(double v) {
    if (!std::isfinite(v)) return;
    low = std::min(low, v);
    high = std::max(high, v);
  }
};

// Both axes in the units that are drawn: logarithms where they are asked for.
struct Scale {
  Range x, y;
  bool log_x = false, log_y = false;
  double px(double v) const {
    return kLeft + (v - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight);
  }
  double py(double v) const {
    return kHeight - kBottom - (v - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
  }
};

// Where an axis is labelled: at round numbers, or at powers of ten.
std::vector<double> ticks(const Range& range, bool log, int count, double least_step) {
  std::vector<double> out;
  const double step = log ? std::max(1.0, std::ceil((range.high - range.low) / count))
                          : std::max(least_step, tick_step(range.high - range.low, count));
  for (double v = std::ceil(range.low / step - 1e-9) * step; v <= range.high + 1e-9 * step;
       v += step)
    out.push_back(std::abs(v) < 1e-9 * step ? 0 : v);
  return out;
}

std::string axes(const Scale& s, const std::string& x_label) {
  std::string svg;
  const auto label = [](double v, bool log) { return short_number(log ? std::pow(10.0, v) : v); };
  for (const double v : ticks(s.y, s.log_y, 4, 0))
    svg += fmt::format(
        "<line class=grid x1={:.1f} x2={:.1f} y1={:.1f} y2={:.1f} /><text class=tick x={:.1f} "
        "y={:.1f} text-anchor=end>{}</text>",
        kLeft, kWidth - kRight, s.py(v), s.py(v), kLeft - 6, s.py(v) + 3.5, label(v, s.log_y));
  // Without a label the axis counts steps, which are whole.
  for (const double v : ticks(s.x, s.log_x, 6, x_label.empty() ? 1 : 0))
    svg += fmt::format("<text class=tick x={:.1f} y={:.1f} text-anchor=middle>{}</text>", s.px(v),
                       kHeight - 8, label(v, s.log_x));
  if (!x_label.empty())
    svg += fmt::format("<text class=tick x={:.1f} y={:.1f} text-anchor=end>{}</text>",
                       kWidth - kRight, kHeight - kBottom - 5, escape_html(x_label));
  return svg;
}

// Values as they are drawn; what has no logarithm leaves a gap.
void to_logarithms(std::vector<double>& values) {
  for (double& v : values) v = v > 0 ? std::log10(v) : NAN;
}

std::string curve(const ChartSeries& s, const Scale& scale) {
  std::string svg, path;
  bool pen_down = false;
  for (std::size_t i = 0; i < s.x.size(); ++i) {
    if (!std::isfinite(s.y[i]) || !std::isfinite(s.x[i])) {
      pen_down = false;
      continue;
    }
    const double x = scale.px(s.x[i]), y = scale.py(std::clamp(s.y[i], scale.y.low, scale.y.high));
    if (s.points)
      svg += fmt::format("<circle class=\"p c{}\" cx={:.1f} cy={:.1f} r=3.2 />", s.color, x, y);
    path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", x, y);
    pen_down = true;
  }
  return fmt::format("<path class=\"{} c{}\" d=\"{}\" />{}", s.points ? "thin" : "line", s.color,
                     path, svg);
}

std::string area(const ChartSeries& s, const std::vector<double>& below, const Scale& scale) {
  std::string top, bottom;
  for (std::size_t i = 0; i < s.x.size(); ++i)
    top += fmt::format("{}{:.1f} {:.1f}", i ? "L" : "M", scale.px(s.x[i]),
                       scale.py(below[i] + s.y[i]));
  for (std::size_t i = s.x.size(); i-- > 0;)
    bottom += fmt::format("L{:.1f} {:.1f}", scale.px(s.x[i]), scale.py(below[i]));
  return fmt::format("<path class=\"area c{}\" d=\"{}{}Z\" />", s.color, top, bottom);
}

}  // namespace

std::string short_number(double v) {
  if (!std::isfinite(v)) return "–";
  const double a = std::abs(v);
  if (v == 0) return "0";
  if (a < 1e-3 || a >= 1e6) return fmt::format("{:.1e}", v);
  if (v == std::floor(v)) return fmt::format("{:.0f}", v);
  return fmt::format("{:.{}f}", v, a >= 100 ? 0 : a >= 10 ? 1 : a >= 1 ? 2 : 3);
}

std::string_view page_style() { return kStyle; }

std::string chart_html(const Chart& chart) {
  std::vector<ChartSeries> series;
  for (const ChartSeries& s : chart.series) {
    series.push_back(s);
    if (chart.log_x) to_logarithms(series.back().x);
    if (chart.log_y) to_logarithms(series.back().y);
    series.back() = thinned(series.back());
  }
  Scale scale;
  scale.log_x = chart.log_x;
  scale.log_y = chart.log_y;
  std::vector<double> stack;
  for (const ChartSeries& s : series) {
    stack.resize(s.x.size(), 0.0);
    for (std::size_t i = 0; i < s.x.size(); ++i) {
      scale.x.take(s.x[i]);
      if (chart.stacked) stack[i] += std::isfinite(s.y[i]) ? s.y[i] : 0.0;
      scale.y.take(chart.stacked ? stack[i] : s.y[i]);
    }
  }
  if (!std::isfinite(scale.y.low)) scale.y = {0, 1};
  if (!std::isfinite(scale.x.low)) scale.x = {0, 1};
  if (chart.from_zero || chart.stacked) scale.y.low = std::min(0.0, scale.y.low);
  if (chart.y_max > 0) scale.y.high = chart.y_max;
  if (scale.y.high - scale.y.low < 1e-12) scale.y.high = scale.y.low + 1;
  if (scale.x.high - scale.x.low < 1e-12) scale.x.high = scale.x.low + 1;

  std::string body = axes(scale, chart.x_label), legend;
  std::vector<double> below(stack.size(), 0.0);
  for (std::size_t k = 0; k < series.size(); ++k) {
    const ChartSeries& s = series[k];
    if (chart.stacked) {
      body += area(s, below, scale);
      for (std::size_t i = 0; i < s.y.size(); ++i) below[i] += s.y[i];
    } else {
      body += curve(s, scale);
    }
    const auto& y = chart.series[k].y;
    const std::string last = y.empty() ? "–" : short_number(y.back());
    legend +=
        fmt::format("<span class=key><i class=c{}></i>{}{}</span>", s.color, escape_html(s.name),
                    chart.last_values ? fmt::format(" <b>{}</b>", last) : "");
  }
  return fmt::format(
      "<figure><figcaption><strong>{}</strong>{}<span class=legend>{}</span></figcaption><svg "
      "viewBox=\"0 0 {:.0f} {:.0f}\" role=img aria-label=\"{}\">{}</svg></figure>\n",
      escape_html(chart.title),
      chart.unit.empty() ? "" : fmt::format(" <span class=unit>{}</span>", escape_html(chart.unit)),
      legend, kWidth, kHeight, escape_html(chart.title), body);
}

}  // namespace weft
