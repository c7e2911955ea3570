// Line charts as inline SVG for HTML reports: no script needed to see them, and one style
// sheet for all reports.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

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
  bool from_zero = false;             // the y axis starts at 0
  double y_max = 0;                   // above 0: the y axis ends here (rates end at 1)
  bool stacked = false;               // each series is drawn on top of the one before, as areas
  std::string x_label = {};           // what the x axis counts
  bool log_x = false, log_y = false;  // decimal logarithms; values of 0 and below leave gaps
  bool last_values = true;            // the legend shows the last value of each series
};

// A <figure> with title, legend with last values, and the drawing. Long series are
// averaged down to what can be seen.
std::string chart_html(const Chart& chart);
// The style sheet of a report page (light and dark), which chart_html's classes need.
std::string_view page_style();
// Short number for people: "0.0123", "1,234", "3.2e-05".
std::string short_number(double value);

}  // namespace weft
