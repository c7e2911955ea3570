// Line charts as inline SVG for HTML reports: no script needed to see them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::rl {

// One curve over a common x axis. NaN leaves a gap.
struct ChartSeries {
  std::string name;
  std::vector<double> x, y;
  int color = 0;        // index of the CSS classes c0 ... c4
  bool points = false;  // draws points instead of a line
};
struct Chart {
  std::string title, unit;
  std::vector<ChartSeries> series;
  bool from_zero = false;  // the y axis starts at 0
  double y_max = 0;        // above 0: the y axis ends here (rates end at 1)
  bool stacked = false;    // each series is drawn on top of the one before, as areas
};

// A <figure> with title, legend with last values, and the drawing. Long series are
// averaged down to what can be seen.
std::string chart_html(const Chart& chart);
// Short number for people: "0.0123", "1,234", "3.2e-05".
std::string short_number(double value);

}  // namespace weft::rl
