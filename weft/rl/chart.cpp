#include "weft/rl/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "weft/base/html.h"
namespace weft::rl {
namespace {

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
      if (!std::isfinite(s.y[k])) continue;
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

struct Scale {
  Range x, y;
  double px(double v) const {
    return kLeft + (v - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight);
  }
  double py(double v) const {
    return kHeight - kBottom - (v - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
  }
};

std::string axes(const Scale& s) {
  std::string svg;
  const double y_step = tick_step(s.y.high - s.y.low, 4);
  for (double v = std::ceil(s.y.low / y_step - 1e-9) * y_step; v <= s.y.high + 1e-9 * y_step;
       v += y_step) {
    const double clean = std::abs(v) < 1e-9 * y_step ? 0 : v;
    svg += fmt::format(
        "<line class=grid x1={:.1f} x2={:.1f} y1={:.1f} y2={:.1f} /><text class=tick x={:.1f} "
        "y={:.1f} text-anchor=end>{}</text>",
        kLeft, kWidth - kRight, s.py(v), s.py(v), kLeft - 6, s.py(v) + 3.5, short_number(clean));
  }
  const double x_step = std::max(1.0, tick_step(s.x.high - s.x.low, 6));
  for (double v = std::ceil(s.x.low / x_step) * x_step; v <= s.x.high; v += x_step)
    svg += fmt::format("<text class=tick x={:.1f} y={:.1f} text-anchor=middle>{}</text>", s.px(v),
                       kHeight - 8, short_number(v));
  return svg;
}

std::string curve(const ChartSeries& s, const Scale& scale) {
  std::string svg, path;
  bool pen_down = false;
  for (std::size_t i = 0; i < s.x.size(); ++i) {
    if (!std::isfinite(s.y[i])) {
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

std::string chart_html(const Chart& chart) {
  std::vector<ChartSeries> series;
  for (const ChartSeries& s : chart.series) series.push_back(thinned(s));
  Scale scale;
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

  std::string body = axes(scale), legend;
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
    legend += fmt::format("<span class=key><i class=c{}></i>{} <b>{}</b></span>", s.color,
                          escape_html(s.name), y.empty() ? "–" : short_number(y.back()));
  }
  return fmt::format(
      "<figure><figcaption><strong>{}</strong>{}<span class=legend>{}</span></figcaption><svg "
      "viewBox=\"0 0 {:.0f} {:.0f}\" role=img aria-label=\"{}\">{}</svg></figure>\n",
      escape_html(chart.title),
      chart.unit.empty() ? "" : fmt::format(" <span class=unit>{}</span>", escape_html(chart.unit)),
      legend, kWidth, kHeight, escape_html(chart.title), body);
}

}  // namespace weft::rl
