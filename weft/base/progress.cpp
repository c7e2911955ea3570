#include "weft/base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string_view>

#include "weft/base/units.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kRateWindow = std::chrono::seconds(10);

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

std::string amount(std::int64_t value, std::string_view unit) {
  return unit == "B" ? human_bytes(static_cast<double>(value)) : fmt::format("{}", value);
}

// Three significant digits: enough to see a change, few enough to read.
std::string rate_text(double rate, std::string_view unit) {
  if (unit == "B") return human_bytes(rate) + "/s";
  if (rate < 1) return fmt::format("{:.3g} {}/s", rate, unit);
  return fmt::format("{} {}/s", rate < 99.95 ? fmt::format("{:.3g}", rate) : human_count(rate),
                     unit);
}

}  // namespace

std::string format_progress(const ProgressView& view, int columns) {
  std::string line = view.what;
  const bool bar = columns > 0 && view.total > 0 && !view.finished;
  if (bar) {
    const int width = std::clamp(columns / 5, 8, 30);
    const double share =
        std::clamp(static_cast<double>(view.done) / static_cast<double>(view.total), 0.0, 1.0);
    const auto full = static_cast<std::size_t>(share * width);
    line += " [" + std::string(full, '#') +
            std::string(static_cast<std::size_t>(width) - full, '.') + "] ";
  } else {
    line += ": ";
  }
  line += amount(view.done, view.unit);
  if (view.total > 0) line += "/" + amount(view.total, view.unit);
  if (view.unit != "B") line += " " + view.unit;
  if (view.finished) {
    line += " in " + human_duration(view.elapsed_s);
    if (view.rate > 0) line += " (" + rate_text(view.rate, view.unit) + ")";
  } else {
    if (view.total > 0) line += fmt::format(" ({} %)", view.done * 100 / view.total);
    if (view.rate > 0) {
      line += ", " + rate_text(view.rate, view.unit);
      const auto left = static_cast<double>(view.total - view.done);
      if (left > 0) line += ", " + human_duration(left / view.rate) + " left";
    }
  }
  if (!view.note.empty()) line += ", " + view.note;
  if (columns > 0 && line.size() >= static_cast<std::size_t>(columns)) {
    line.resize(static_cast<std::size_t>(columns) - 1);
  }
  return line;
}

struct Progress::State {
  std::mutex mutex;
  ProgressOptions options;
  ProgressView view;
  bool terminal = false;
  bool finished = false;
  bool bar_drawn = false;
  Clock::time_point start = Clock::now();
  Clock::time_point next_output = start;
  std::deque<std::pair<Clock::time_point, std::int64_t>> window;  // for the rate of late

  int columns() const {
    winsize size{};
    if (::ioctl(::fileno(options.out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      return size.ws_col;
    }
    return 80;
  }

  void update(Clock::time_point now) {
    if (options.quiet || finished || now < next_output) return;
    window.emplace_back(now, view.done);
    while (window.size() > 2 && now - window.front().first > kRateWindow) window.pop_front();
    const auto& [since, before] = window.front();
    view.rate = now > since ? static_cast<double>(view.done - before) / seconds(now - since) : 0;
    next_output = now + (terminal ? Clock::duration(kRedraw) : options.line_every);
    write();
  }

  void write() {
    if (terminal) {
      fmt::print(options.out, "\r{}\x1b[K", format_progress(view, columns()));
      bar_drawn = true;
    } else {
      fmt::print(options.out, "{}\n", format_progress(view, 0));
    }
    std::fflush(options.out);
  }
};

Progress::Progress(std::string what, std::int64_t total, std::string unit, ProgressOptions options)
    : state_(std::make_unique<State>()) {
  state_->options = options;
  state_->view.what = std::move(what);
  state_->view.unit = std::move(unit);
  state_->view.total = total;
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::string_view(term) == "dumb";
  state_->terminal = !dumb && ::isatty(::fileno(options.out)) != 0;
  state_->window.emplace_back(state_->start, 0);
  // In a pipe the first line comes after one interval: short work stays silent
  // until its end.
  if (!state_->terminal) state_->next_output += options.line_every;
}

Progress::~Progress() { finish(); }

void Progress::advance(std::int64_t amount) {
  const std::lock_guard lock(state_->mutex);
  state_->view.done += amount;
  state_->update(Clock::now());
}

void Progress::set(std::int64_t done) {
  const std::lock_guard lock(state_->mutex);
  state_->view.done = done;
  state_->update(Clock::now());
}

void Progress::note(std::string text) {
  const std::lock_guard lock(state_->mutex);
  state_->view.note = std::move(text);
  state_->update(Clock::now());
}

void Progress::line(const std::string& text) {
  const std::lock_guard lock(state_->mutex);
  if (state_->options.quiet) return;
  fmt::print(state_->options.out, "{}{}\n", state_->bar_drawn ? "\r\x1b[K" : "", text);
  if (state_->bar_drawn && !state_->finished) state_->write();
  std::fflush(state_->options.out);
}

void Progress::finish() {
  const std::lock_guard lock(state_->mutex);
  if (state_->finished) return;
  state_->finished = true;
  if (state_->options.quiet) return;
  ProgressView& view = state_->view;
  view.finished = true;
  view.elapsed_s = seconds(Clock::now() - state_->start);
  view.rate = view.elapsed_s > 0 ? static_cast<double>(view.done) / view.elapsed_s : 0;
  state_->write();
  if (state_->terminal) fmt::print(state_->options.out, "\n");
  std::fflush(state_->options.out);
}

}  // namespace weft
