#include "weft/serve/load_report.h"

#include <algorithm>
#include <cmath>

#include "weft/base/file.h"
#include "weft/workload/field_text.h"
#include "weft/workload/special_functions.h"

namespace weft::serve {
namespace {

Json interval_json(const Interval& interval) { return {interval.low, interval.high}; }

// The labels of outcomes, in the order of the enum.
constexpr std::string_view kOutcomes[] = {"ok",           "refused",      "timeout",  "reset",
                                          "truncated",    "malformed",    "too_many", "unavailable",
                                          "client_error", "server_error", "stopped"};

bool answered(const LoadRecord& record) { return record.outcome == LoadOutcome::kOk; }

StageReport report_stage(std::string name, std::span<const LoadRecord* const> records,
                         const LoadSlo& slo) {
  StageReport out;
  out.name = std::move(name);
  std::vector<double> ttft, from_send, tpot, itl, e2e, lateness;
  std::int64_t good = 0;
  double first = INFINITY, last = 0, planned = 0;
  for (const LoadRecord* record : records) {
    ++out.requests;
    if (record->sent_ns >= 0) lateness.push_back(record->lateness_s());
    first = std::min(first, static_cast<double>(record->intended_ns) / 1e9);
    last = std::max({last, static_cast<double>(record->end_ns) / 1e9,
                     static_cast<double>(record->intended_ns) / 1e9});
    if (!answered(*record)) {
      ++out.failures[std::string(to_string(record->outcome))];
      continue;
    }
    ++out.ok;
    planned += record->input_tokens;
    ttft.push_back(record->ttft_s());
    from_send.push_back(record->ttft_from_send_s());
    e2e.push_back(record->e2e_s());
    if (record->completion_tokens > 1) tpot.push_back(record->tpot_s());
    itl.insert(itl.end(), record->gaps_s.begin(), record->gaps_s.end());
    out.input_tokens += record->prompt_tokens;
    out.output_tokens += record->completion_tokens;
    out.cached_tokens += record->cached_tokens;
    out.short_outputs += record->completion_tokens < record->output_tokens;
    good += slo.met(*record);
  }
  out.ttft_s = measure(std::move(ttft));
  out.ttft_from_send_s = measure(std::move(from_send));
  out.tpot_s = measure(std::move(tpot));
  out.itl_s = measure(std::move(itl));
  out.e2e_s = measure(std::move(e2e));
  out.lateness_s = measure(std::move(lateness));
  if (out.ok > 0) {
    out.mean_planned_input = planned / static_cast<double>(out.ok);
    out.mean_input = static_cast<double>(out.input_tokens) / static_cast<double>(out.ok);
  }
  out.begin_s = out.requests > 0 ? first : 0;
  out.end_s = last;
  const double span = last - out.begin_s;
  if (span > 0) {
    out.achieved_rate = static_cast<double>(out.ok) / span;
    out.input_rate = static_cast<double>(out.input_tokens) / span;
    out.output_rate = static_cast<double>(out.output_tokens) / span;
    out.goodput = static_cast<double>(good) / span;
  }
  if (out.requests > 0) {
    out.attainment = static_cast<double>(good) / static_cast<double>(out.requests);
  }
  return out;
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.{}f}", seconds * 1000, seconds < 0.1 ? 2 : seconds < 10 ? 1 : 0);
}

std::string row(std::string_view what, const Measured& m) {
  return fmt::format(
      "  {:<22}{:>10}{:>10}{:>10}{:>10}{:>10}   [{}, {}]\n", what, milliseconds(m.summary.mean),
      milliseconds(m.summary.p50), milliseconds(m.summary.p90), milliseconds(m.summary.p99),
      milliseconds(m.summary.max), milliseconds(m.p99.low), milliseconds(m.p99.high));
}

std::string stage_text(const StageReport& stage, bool has_slo) {
  std::string out = fmt::format("{}: {} requests in {:.1f} s", stage.name, stage.requests,
                                stage.end_s - stage.begin_s);
  if (stage.asked_rate > 0) out += fmt::format(", {:.3g}/s asked for", stage.asked_rate);
  out += fmt::format(", {:.3g}/s answered; {:.4g} tokens/s in, {:.4g} out\n", stage.achieved_rate,
                     stage.input_rate, stage.output_rate);
  out += fmt::format("  {:<22}{:>10}{:>10}{:>10}{:>10}{:>10}   95 % of p99\n", "ms", "mean", "p50",
                     "p90", "p99", "max");
  out += row("TTFT", stage.ttft_s) + row("  from sending", stage.ttft_from_send_s) +
         row("TPOT", stage.tpot_s) + row("ITL", stage.itl_s) + row("end to end", stage.e2e_s) +
         row("client lateness", stage.lateness_s);
  for (const auto& [label, count] : stage.failures) {
    out += fmt::format("  failed: {} {}\n", count, label);
  }
  if (has_slo) {
    out += fmt::format("  goodput {:.3g} requests/s; {:.1f} % of requests met the SLO\n",
                       stage.goodput, 100 * stage.attainment);
  }
  if (stage.cached_tokens > 0) {
    out += fmt::format(
        "  {:.1f} % of prompt tokens came from the server's cache\n",
        100.0 * static_cast<double>(stage.cached_tokens) / static_cast<double>(stage.input_tokens));
  }
  return out;
}

}  // namespace

std::string_view to_string(LoadOutcome outcome) {
  return kOutcomes[static_cast<std::size_t>(outcome)];
}

double LoadRecord::tpot_s() const {
  return completion_tokens > 1
             ? static_cast<double>(end_ns - first_ns) / 1e9 / (completion_tokens - 1)
             : 0;
}

bool LoadSlo::met(const LoadRecord& record) const {
  if (!answered(record)) return false;
  if (ttft_s && record.ttft_s() > *ttft_s) return false;
  if (tpot_s && record.tpot_s() > *tpot_s) return false;
  if (e2e_s && record.e2e_s() > *e2e_s) return false;
  if (itl_s && !record.gaps_s.empty() && std::ranges::max(record.gaps_s) > *itl_s) return false;
  return true;
}

Result<LoadSlo> parse_slo(std::string_view text) {
  LoadSlo slo;
  while (!text.empty()) {
    const auto comma = text.find(',');
    std::string_view item = workload::trimmed(text.substr(0, comma));
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
    const auto equals = item.find('=');
    if (equals == std::string_view::npos) {
      return fail(ErrorCode::kInvalidArgument, "--slo: '{}' is not NAME=SECONDS", item);
    }
    const std::string_view name = item.substr(0, equals);
    std::string_view number = item.substr(equals + 1);
    double scale = 1;
    if (number.ends_with("ms")) {
      number.remove_suffix(2);
      scale = 1e-3;
    } else if (number.ends_with("s")) {
      number.remove_suffix(1);
    }
    double value = 0;
    if (!workload::parse_double(number, value) || !(value > 0)) {
      return fail(ErrorCode::kInvalidArgument, "--slo: '{}' is no time above 0", item);
    }
    auto* target = name == "ttft"   ? &slo.ttft_s
                   : name == "tpot" ? &slo.tpot_s
                   : name == "itl"  ? &slo.itl_s
                   : name == "e2e"  ? &slo.e2e_s
                                    : nullptr;
    if (target == nullptr) {
      return fail(ErrorCode::kInvalidArgument, "--slo: '{}' is none of ttft, tpot, itl, e2e", name);
    }
    *target = value * scale;
  }
  return slo;
}

// Ranks l and u with P(X_(l) <= quantile <= X_(u)) of about 95 %, by the normal
// approximation to Binomial(n, q) with continuity correction.
Interval quantile_interval(std::span<const double> sorted, double q) {
  if (sorted.empty()) return {};
  const auto n = static_cast<double>(sorted.size());
  const double half = 1.959964 * std::sqrt(n * q * (1 - q)) + 0.5;
  const auto at = [&](double rank) {
    return sorted[static_cast<std::size_t>(std::clamp(rank, 0.0, n - 1))];
  };
  return {at(std::floor(n * q - half)), at(std::ceil(n * q + half) - 1)};
}

Json Measured::json() const {
  Json out = summary.json();
  out["interval_95"] = {
      {"p50", interval_json(p50)}, {"p90", interval_json(p90)}, {"p99", interval_json(p99)}};
  return out;
}

Measured measure(std::vector<double> values) {
  Measured out;
  std::ranges::sort(values);
  out.p50 = quantile_interval(values, 0.5);
  out.p90 = quantile_interval(values, 0.9);
  out.p99 = quantile_interval(values, 0.99);
  out.summary = workload::summarise(std::move(values));
  return out;
}

Json StageReport::json() const {
  return {{"name", name},
          {"begin_s", begin_s},
          {"end_s", end_s},
          {"asked_rate", asked_rate},
          {"asked_concurrency", asked_concurrency},
          {"achieved_rate", achieved_rate},
          {"requests", requests},
          {"ok", ok},
          {"failures", failures},
          {"ttft_s", ttft_s.json()},
          {"ttft_from_send_s", ttft_from_send_s.json()},
          {"tpot_s", tpot_s.json()},
          {"itl_s", itl_s.json()},
          {"e2e_s", e2e_s.json()},
          {"lateness_s", lateness_s.json()},
          {"input_tokens", input_tokens},
          {"output_tokens", output_tokens},
          {"cached_tokens", cached_tokens},
          {"input_tokens_per_s", input_rate},
          {"output_tokens_per_s", output_rate},
          {"mean_planned_input", mean_planned_input},
          {"mean_input", mean_input},
          {"short_outputs", short_outputs},
          {"goodput", goodput},
          {"slo_attainment", attainment}};
}

Json LoadReport::json() const {
  Json promised = Json::object();
  if (slo.ttft_s) promised["ttft_s"] = *slo.ttft_s;
  if (slo.tpot_s) promised["tpot_s"] = *slo.tpot_s;
  if (slo.itl_s) promised["itl_s"] = *slo.itl_s;
  if (slo.e2e_s) promised["e2e_s"] = *slo.e2e_s;
  Json out = {{"target", target},
              {"mode", mode},
              {"wall_s", wall_s},
              {"peak_concurrency", peak_concurrency},
              {"words_per_token", words_per_token},
              {"saturated", saturated},
              {"stopped", stopped},
              {"slo", std::move(promised)},
              {"notes", notes},
              {"whole", whole.json()}};
  Json list = Json::array();
  for (const StageReport& stage : stages) list.push_back(stage.json());
  out["stages"] = std::move(list);
  return out;
}

std::string LoadReport::text() const {
  std::string out;
  for (const StageReport& stage : stages) out += stage_text(stage, !slo.empty());
  out += stage_text(whole, !slo.empty());
  out += fmt::format("  at most {} requests at once\n", peak_concurrency);
  for (const auto& note : notes) out += fmt::format("  note: {}\n", note);
  return out;
}

LoadReport report_load(const LoadPlan& plan, const LoadRun& run, const LoadSlo& slo,
                       std::string target) {
  LoadReport out;
  out.target = std::move(target);
  out.mode = plan.mode;
  out.slo = slo;
  out.wall_s = run.wall_s;
  out.words_per_token = run.words_per_token;
  out.peak_concurrency = run.peak_concurrency;
  out.saturated = run.saturated;
  out.stopped = run.stopped;
  std::vector<const LoadRecord*> all;
  std::vector<std::vector<const LoadRecord*>> by_stage(plan.stages.size());
  std::int64_t cold = 0, never_sent = 0;
  for (const LoadRecord& record : run.records) {
    if (!record.warm) {
      ++cold;
      continue;
    }
    never_sent += record.sent_ns < 0;
    all.push_back(&record);
    by_stage[record.stage].push_back(&record);
  }
  out.whole =
      report_stage(plan.stages.size() == 1 ? plan.stages.front().name : "whole run", all, slo);
  if (plan.stages.size() == 1) {
    out.whole.asked_rate = plan.stages.front().rate;
    out.whole.asked_concurrency = plan.stages.front().concurrency;
  } else {
    for (std::size_t i = 0; i < by_stage.size(); ++i) {
      out.stages.push_back(report_stage(plan.stages[i].name, by_stage[i], slo));
      out.stages.back().asked_rate = plan.stages[i].rate;
      out.stages.back().asked_concurrency = plan.stages[i].concurrency;
    }
  }
  const auto note = [&](std::int64_t count, const char* text) {
    if (count > 0) out.notes.push_back(fmt::format("{} {}", count, text));
  };
  note(cold, "requests of the warm-up are not reported");
  note(never_sent, "requests were not sent before the run ended");
  note(out.whole.short_outputs, "answers are shorter than asked for");
  if (out.saturated)
    out.notes.emplace_back("stopped: the server is saturated (queue and TTFT grow)");
  const double planned = out.whole.mean_planned_input, real = out.whole.mean_input;
  if (real > 0 && std::abs(real / planned - 1) > 0.1) {
    out.notes.push_back(fmt::format(
        "prompts have {:.0f} tokens on average by the server's count, {:.0f} were planned", real,
        planned));
  }
  if (out.whole.lateness_s.summary.p99 > 0.005) {
    out.notes.push_back(
        fmt::format("the client was late by {:.1f} ms at p99: part of the latencies is its own",
                    1000 * out.whole.lateness_s.summary.p99));
  }
  return out;
}

Json repeats_json(const std::vector<LoadReport>& reports) {
  Json out = Json::object();
  const auto over = [&](const char* name, auto value) {
    std::vector<double> values;
    for (const LoadReport& report : reports) values.push_back(value(report.whole));
    const auto s = workload::summarise(values);
    const double half =
        s.count > 1 ? workload::student_quantile_two_sided(0.05, static_cast<double>(s.count - 1)) *
                          s.std / std::sqrt(static_cast<double>(s.count))
                    : 0;
    out[name] = {
        {"runs", values}, {"mean", s.mean}, {"interval_95", {s.mean - half, s.mean + half}}};
  };
  over("ttft_p50_s", [](const StageReport& r) { return r.ttft_s.summary.p50; });
  over("ttft_p99_s", [](const StageReport& r) { return r.ttft_s.summary.p99; });
  over("itl_p99_s", [](const StageReport& r) { return r.itl_s.summary.p99; });
  over("e2e_p99_s", [](const StageReport& r) { return r.e2e_s.summary.p99; });
  over("output_tokens_per_s", [](const StageReport& r) { return r.output_rate; });
  over("goodput", [](const StageReport& r) { return r.goodput; });
  return out;
}

Status write_load_csv(const LoadRun& run, const std::filesystem::path& path) {
  std::string out = "#weft-requests 1 {\"source\":\"weft load\",\"times\":true}\n";
  out +=
      "time_s,input_tokens,output_tokens,label,session,failed,sent_s,ttft_s,tpot_s,itl_max_s,"
      "e2e_s,prompt_tokens,completion_tokens,cached_tokens,status,stage\n";
  std::vector<const LoadRecord*> order;
  for (const LoadRecord& record : run.records) order.push_back(&record);
  std::ranges::stable_sort(order, {}, &LoadRecord::intended_ns);
  for (const LoadRecord* r : order) {
    const bool ok = answered(*r);
    const auto time = [&](bool known, double seconds) {
      return known ? fmt::format("{:.9f}", seconds) : std::string();
    };
    // Failures of this run are requests of the next: `failed` stays empty, the label tells.
    out +=
        fmt::format("{},{},{},{},{},,{},{},{},{},{},{},{},{},{},{}\n",
                    workload::format_seconds(r->intended_ns), r->input_tokens, r->output_tokens,
                    to_string(r->outcome), r->session >= 0 ? fmt::format("s{}", r->session) : "",
                    time(r->sent_ns >= 0, static_cast<double>(r->sent_ns) / 1e9),
                    time(r->first_ns >= 0, r->ttft_s()), time(ok, r->tpot_s()),
                    time(!r->gaps_s.empty(), r->gaps_s.empty() ? 0 : std::ranges::max(r->gaps_s)),
                    time(ok, r->e2e_s()), r->prompt_tokens, r->completion_tokens, r->cached_tokens,
                    r->status, r->stage);
  }
  return write_file_atomic(path, out);
}

}  // namespace weft::serve
