#include "weft/rl/report.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "weft/base/chart.h"
#include "weft/base/file.h"
#include "weft/base/html.h"
#include "weft/base/json.h"
#include "weft/rl/run_directory.h"

namespace weft::rl {
namespace {

double number(const Json& line, const char* key) {
  const auto it = line.find(key);
  return it != line.end() && it->is_number() ? it->get<double>() : NAN;
}

ChartSeries series(const std::vector<Json>& lines, std::string name, const char* key, int color,
                   double scale = 1.0) {
  ChartSeries s{.name = std::move(name), .x = {}, .y = {}, .color = color};
  for (const Json& line : lines) {
    s.x.push_back(number(line, "step"));
    s.y.push_back(number(line, key) * scale);
  }
  return s;
}

ChartSeries time_series(const std::vector<Json>& lines, std::string name, const char* key,
                        int color) {
  ChartSeries s{.name = std::move(name), .x = {}, .y = {}, .color = color};
  for (const Json& line : lines) {
    s.x.push_back(number(line, "step"));
    const auto time = line.find("time");
    const double v = time == line.end() ? 0 : number(*time, key);
    s.y.push_back(std::isfinite(v) ? v : 0);
  }
  return s;
}

bool any_above_zero(const std::vector<Json>& lines, const char* key) {
  return std::any_of(lines.begin(), lines.end(), [&](const Json& l) { return number(l, key) > 0; });
}

std::string charts(const std::vector<Json>& steps, const std::vector<Json>& evaluations) {
  std::string html;
  html += chart_html(
      {.title = "Reward",
       .unit = "of the samples trained on",
       .series = {series(steps, "max", "reward_max", 4), series(steps, "min", "reward_min", 4),
                  series(steps, "mean", "reward_mean", 0)}});
  ChartSeries greedy = series(evaluations, "greedy, held out", "exact", 1);
  greedy.points = true;
  html += chart_html({.title = "Exactly right",
                      .unit = "share",
                      .series = {series(steps, "sampled", "exact", 0),
                                 series(steps, "pass@group", "pass_at_group", 4), greedy},
                      .from_zero = true,
                      .y_max = 1.0});
  html += chart_html({.title = "Entropy",
                      .unit = "nats a token",
                      .series = {series(steps, "mean", "entropy", 0)},
                      .from_zero = true});
  Chart kl{.title = "Divergence",
           .unit = "nats a token (k3)",
           .series = {series(steps, "update, new | old", "approx_kl", 0)},
           .from_zero = true};
  if (any_above_zero(steps, "kl_reference"))
    kl.series.push_back(series(steps, "from the first weights", "kl_reference", 1));
  html += chart_html(kl);
  html += chart_html({.title = "Gradient norm",
                      .unit = "before clipping",
                      .series = {series(steps, "norm", "grad_norm", 0)},
                      .from_zero = true});
  html += chart_html(
      {.title = "Reply length",
       .unit = "tokens",
       .series = {series(steps, "max", "length_max", 4), series(steps, "mean", "length_mean", 0)},
       .from_zero = true});
  html += chart_html({.title = "Time of a step",
                      .unit = "seconds",
                      .series = {time_series(steps, "generate", "generate_s", 0),
                                 time_series(steps, "reward", "reward_s", 3),
                                 time_series(steps, "log-probs", "logp_s", 2),
                                 time_series(steps, "update", "update_s", 1),
                                 time_series(steps, "publish", "sync_s", 4)},
                      .stacked = true});
  html += chart_html({.title = "Sampling speed",
                      .unit = "tokens/s",
                      .series = {time_series(steps, "sampled", "tokens_per_s", 0)},
                      .from_zero = true});
  return html;
}

std::string tile(const std::string& value, const std::string& what) {
  return fmt::format("<div class=tile><b>{}</b><span>{}</span></div>", value, what);
}

std::string percent(double v) { return std::isfinite(v) ? fmt::format("{:.0f} %", 100 * v) : "–"; }

std::string tiles(const std::vector<Json>& steps, const std::vector<Json>& evaluations) {
  const auto change = [](const std::string& from, const std::string& to) {
    return fmt::format("<em>{} →</em> {}", from, to);
  };
  const std::size_t window = std::min<std::size_t>(steps.size(), 10);
  double first = 0, last = 0, seconds = 0, mismatch = 0, tokens = 0;
  for (std::size_t i = 0; i < window; ++i)
    last += number(steps[steps.size() - 1 - i], "reward_mean") / double(window);
  if (!steps.empty()) first = number(steps.front(), "reward_mean");
  for (const Json& s : steps) {
    const auto time = s.find("time");
    if (time != s.end()) seconds += number(*time, "total_s");
    mismatch = std::max(mismatch, number(s, "logp_mismatch_max"));
    tokens += number(s, "tokens");
  }
  std::string html = "<div class=tiles>";
  html +=
      tile(change(short_number(first), short_number(last)), "mean reward, first step and last ten");
  if (!evaluations.empty())
    html += tile(change(percent(number(evaluations.front(), "exact")),
                        percent(number(evaluations.back(), "exact"))),
                 "greedy replies exactly right");
  html += tile(std::to_string(steps.size()), "steps");
  html += tile(
      seconds >= 120 ? fmt::format("{:.1f} min", seconds / 60) : fmt::format("{:.0f} s", seconds),
      "in the loop");
  html += tile(short_number(tokens), "tokens sampled");
  html += tile(short_number(mismatch), "largest |log p sampler − trainer|");
  return html + "</div>";
}

std::string replies_table(const Json& evaluation, const char* title) {
  std::string html =
      fmt::format("<div><table><tr><th colspan=3>{} · step {} · {} right, mean reward {}</th></tr>",
                  title, number(evaluation, "step"), percent(number(evaluation, "exact")),
                  short_number(number(evaluation, "reward")));
  const auto samples = evaluation.find("samples");
  if (samples != evaluation.end())
    for (const Json& s : *samples)
      html += fmt::format(
          "<tr><td class=text>{}</td><td class=text><span class={}>{}</span></td><td "
          "class=num>{}</td></tr>",
          escape_html(s.value("prompt", "")), s.value("exact", false) ? "good" : "bad",
          escape_html(s.value("reply", "")), short_number(number(s, "reward")));
  return html + "</table></div>";
}

std::string key_values(const Json& object) {
  std::string html = "<table>";
  for (const auto& [key, value] : object.items())
    html +=
        fmt::format("<tr><th>{}</th><td><code>{}</code></td></tr>", escape_html(key),
                    escape_html(value.is_string() ? value.get<std::string>() : dump_json(value)));
  return html + "</table>";
}

std::string warnings(const std::vector<Json>& steps) {
  std::string html;
  std::int64_t skipped = 0, errors = 0, alarm = 0;
  for (const Json& s : steps) {
    skipped += s.value("skipped", false);
    errors += s.value("reward_errors", std::int64_t{0});
    if (alarm == 0 && s.value("entropy_alarm", false)) alarm = s.value("step", std::int64_t{0});
  }
  const auto line = [&](const std::string& text) { html += "<p class=warn>" + text + "</p>"; };
  if (alarm > 0)
    line(fmt::format("The entropy collapsed at step {} before the replies were right.", alarm));
  if (skipped > 0)
    line(fmt::format("{} steps were skipped; their batches lie in dumps/.", skipped));
  if (errors > 0)
    line(fmt::format("{} samples had no reward; their groups were not trained on.", errors));
  return html;
}

}  // namespace

Status write_report(const std::filesystem::path& run) {
  const auto read = [&](const char* name) -> Result<Json> {
    WEFT_ASSIGN(const std::string text, read_file(run / name));
    return parse_json(text, (run / name).string());
  };
  WEFT_ASSIGN(const Json config, read("config.json"));
  WEFT_ASSIGN(const Json machine, read("machine.json"));
  WEFT_ASSIGN(const std::vector<Json> steps, read_json_lines(run / "metrics.jsonl"));
  WEFT_ASSIGN(const std::vector<Json> evaluations, read_json_lines(run / "evaluations.jsonl"));
  const std::string model = config.value("model", "");
  std::string html = fmt::format(
      "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
      "content=\"width=device-width,initial-scale=1\"><title>weft rl · {} · "
      "{}</title><style>{}</style><main>"
      "<h1>{} on {}</h1><p class=lead>Post-training by reinforcement learning, {} · seed {} · {} "
      "prompts × {} "
      "replies a step · learning rate {} · {}</p>",
      escape_html(config.value("task", "")), escape_html(config.value("algo", "")), page_style(),
      escape_html(model.empty() ? "A small transformer" : model),
      escape_html(config.value("task", "")), escape_html(config.value("algo", "")),
      dump_json(config.value("seed", Json(0))), dump_json(config.value("prompts", Json(0))),
      dump_json(config.value("group", Json(0))), dump_json(config.value("lr", Json(0))),
      escape_html(machine.value("cpu", "")));
  html += tiles(steps, evaluations) + warnings(steps);
  html += "<h2>Curves</h2><div class=charts>" + charts(steps, evaluations) + "</div>";
  if (!evaluations.empty()) {
    html += "<h2>Greedy replies before and after</h2><div class=pair>" +
            replies_table(evaluations.front(), "Before");
    if (evaluations.size() > 1) html += replies_table(evaluations.back(), "After");
    html += "</div>";
  }
  html += "<h2>Configuration</h2><details><summary>every key</summary>" + key_values(config) +
          "</details>";
  html += "<h2>Machine</h2>" + key_values(machine);
  html +=
      "<footer>Written by weft rl from metrics.jsonl and evaluations.jsonl of this "
      "run.</footer></main></html>\n";
  return write_file_atomic(run / "report.html", html);
}

}  // namespace weft::rl
