#include "weft/rl/view.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace weft::rl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kDrawEvery = std::chrono::milliseconds(100);
constexpr auto kLineEvery = std::chrono::seconds(2);

std::size_t columns_of(std::FILE* out) {
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 80;
}

std::string one_line(std::string_view text) {
  std::string out;
  for (char c : text) out += c == '\n' || c == '\r' || c == '\t' ? ' ' : c;
  return out;
}

// At most `columns` characters; a character is counted where a UTF-8 sequence begins.
std::string cut(const std::string& line, std::size_t columns) {
  std::size_t seen = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if ((static_cast<unsigned char>(line[i]) & 0xC0U) == 0x80U) continue;
    if (seen++ == columns) return line.substr(0, i);
  }
  return line;
}

std::string duration(double seconds) {
  const auto s = static_cast<std::int64_t>(seconds + 0.5);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace

std::string sparkline(const std::vector<double>& values, std::size_t width) {
  static const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (values.empty() || width == 0) return {};
  const std::size_t n = std::min(width, values.size());
  std::vector<double> shown(n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t begin = i * values.size() / n, end = (i + 1) * values.size() / n;
    for (std::size_t k = begin; k < end; ++k)
      shown[i] += values[k] / static_cast<double>(end - begin);
  }
  const auto [low, high] = std::minmax_element(shown.begin(), shown.end());
  const double range = *high - *low;
  std::string line;
  for (double v : shown)
    line += kBars[range > 0 ? static_cast<int>(std::min(7.0, (v - *low) / range * 8)) : 3];
  return line;
}

LoopView::LoopView(std::FILE* out, bool quiet)
    : out_(out), quiet_(quiet), terminal_(isatty(fileno(out)) == 1), begin_(Clock::now()) {}

LoopView::~LoopView() {
  if (terminal_ && !quiet_ && drawn_lines_ > 0) {
    erase();
    draw();
  }
}

LoopEvents LoopView::events() {
  return {.on_start = [this](const std::string& model, std::int64_t n,
                             const RlConfig& config) { started(model, n, config); },
          .on_step = [this](const StepMetrics& m, const std::vector<Group>& g) { stepped(m, g); },
          .on_evaluation = [this](const EvaluationMetrics& m,
                                  const std::vector<EvaluatedReply>&) { evaluated(m); },
          .on_message = [this](const std::string& line) { message(line); }};
}

void LoopView::started(const std::string& model, std::int64_t parameters, const RlConfig& config) {
  steps_ = config.steps;
  header_ = fmt::format("weft rl · {} · {} · {} ({:.1f}M parameters, {}) · {} prompts x {} replies",
                        config.task, config.algo, model, static_cast<double>(parameters) / 1e6,
                        config.compute, config.prompts, config.group);
  begin_ = Clock::now();
  if (!terminal_) print_line(header_);
}

void LoopView::stepped(const StepMetrics& m, const std::vector<Group>& groups) {
  last_ = m;
  if (first_step_ < 0) first_step_ = m.step - 1;
  rewards_.push_back(m.reward_mean);
  if (!groups.empty()) {
    const Group& group = groups.front();
    const Sample& s = group.samples.front();
    sample_ = fmt::format("{} -> {}{}  (reward {:.2f})", one_line(group.prompt.text),
                          one_line(s.text), s.ended ? "" : "...", s.score.reward);
  }
  const auto now = Clock::now();
  if (terminal_) {
    if (now - last_output_ < kDrawEvery && m.step != steps_) return;
    last_output_ = now;
    draw();
    return;
  }
  if (now - last_output_ < kLineEvery && m.step != steps_ && m.step != first_step_ + 1) return;
  last_output_ = now;
  print_line(
      fmt::format("step {}/{}  reward {:.3f}  exact {:.2f}  entropy {:.3f}  grad {:.2f}  length "
                  "{:.1f}  {:.0f} tokens/s  "
                  "gen {:.2f}s update {:.2f}s",
                  m.step, steps_, m.reward_mean, m.exact, m.entropy, m.grad_norm, m.length_mean,
                  m.tokens_per_s, m.generate_s, m.logp_s + m.update_s));
}

void LoopView::evaluated(const EvaluationMetrics& m) {
  evaluation_ = m;
  has_evaluation_ = true;
  if (!terminal_)
    print_line(fmt::format(
        "eval after step {}: {:.1f} % of {} greedy replies exactly right, reward {:.3f}", m.step,
        100 * m.exact, m.prompts, m.reward));
}

void LoopView::message(const std::string& line) { print_line(line); }

void LoopView::print_line(const std::string& line) {
  if (quiet_) return;
  erase();
  std::fprintf(out_, "%s\n", line.c_str());
  std::fflush(out_);
}

void LoopView::erase() {
  if (drawn_lines_ == 0) return;
  std::fprintf(out_, "\r\033[%dA\033[J", drawn_lines_);
  drawn_lines_ = 0;
}

void LoopView::draw() {
  if (quiet_ || last_.step == 0) return;
  const std::size_t width = columns_of(out_);
  const double elapsed = std::chrono::duration<double>(Clock::now() - begin_).count();
  const auto done = static_cast<double>(last_.step - first_step_);
  const double left = elapsed / done * static_cast<double>(steps_ - last_.step);
  std::vector<std::string> lines;
  lines.push_back(header_);
  lines.push_back(fmt::format("step {}/{}   {} gone, about {} left", last_.step, steps_,
                              duration(elapsed), duration(left)));
  const std::string numbers =
      fmt::format(" {:.3f}   exact {:.0f} %", last_.reward_mean, 100 * last_.exact);
  lines.push_back("reward " +
                  sparkline(rewards_, std::min<std::size_t>(60, width > 50 ? width - 40 : 10)) +
                  numbers);
  lines.push_back(fmt::format(
      "entropy {:.3f}   gradient {:.2f}   length {:.1f}   greedy {}", last_.entropy,
      last_.grad_norm, last_.length_mean,
      has_evaluation_
          ? fmt::format("{:.0f} % right (step {})", 100 * evaluation_.exact, evaluation_.step)
          : "-"));
  lines.push_back(fmt::format(
      "{:.0f} tokens/s   generate {:.2f} s, reward {:.2f} s, update {:.2f} s, step {:.2f} s",
      last_.tokens_per_s, last_.generate_s, last_.reward_s, last_.logp_s + last_.update_s,
      last_.total_s));
  lines.push_back("sample " + sample_);
  erase();
  for (const std::string& line : lines) std::fprintf(out_, "%s\n", cut(line, width - 1).c_str());
  std::fflush(out_);
  drawn_lines_ = static_cast<int>(lines.size());
}

}  // namespace weft::rl
