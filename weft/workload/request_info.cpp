#include "weft/workload/request_info.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "weft/base/units.h"

namespace weft::workload {
namespace {

SessionStats describe_sessions(const RequestTrace& trace) {
  SessionStats out;
  const std::size_t n = trace.sessions.size();
  std::vector<std::int64_t> turns(n, 0), last(n, 0);
  std::vector<double> gaps;
  for (const Request& row : trace.rows) {
    if (row.session < 0) continue;
    const auto s = static_cast<std::size_t>(row.session);
    if (turns[s]++ > 0) gaps.push_back(static_cast<double>(row.time_ns - last[s]) / kNsPerSecond);
    last[s] = row.time_ns;
    ++out.requests;
  }
  std::vector<double> counts;
  for (const std::int64_t t : turns) {
    if (t == 0) continue;  // every row of it was dropped
    counts.push_back(static_cast<double>(t));
    out.single_share += t == 1;
    out.up_to_four_share += t <= 4;
  }
  out.sessions = static_cast<std::int64_t>(counts.size());
  if (!counts.empty()) {
    out.single_share /= static_cast<double>(counts.size());
    out.up_to_four_share /= static_cast<double>(counts.size());
  }
  out.turns = summarise(std::move(counts));
  out.gap_s = summarise(std::move(gaps));
  return out;
}

PrefixStats describe_prefix(const RequestTrace& trace) {
  PrefixStats out;
  std::unordered_set<std::uint64_t> seen;
  seen.reserve(trace.block_ids.size());
  for (const Request& row : trace.rows) {
    const auto ids = trace.blocks(row);
    std::size_t reused = 0;
    while (reused < ids.size() && seen.contains(ids[reused])) ++reused;
    seen.insert(ids.begin() + static_cast<std::ptrdiff_t>(reused), ids.end());
    out.blocks += static_cast<std::int64_t>(ids.size());
    out.reused_blocks += static_cast<std::int64_t>(reused);
    if (trace.block_tokens == 0 || ids.empty()) continue;
    out.tokens += row.input_tokens;
    out.reused_tokens += std::min<std::int64_t>(
        row.input_tokens, static_cast<std::int64_t>(reused) * trace.block_tokens);
  }
  out.distinct = static_cast<std::int64_t>(seen.size());
  return out;
}

// Requests in each whole window from the first arrival.
std::vector<double> counts_per(std::span<const double> times_s, double window_s) {
  if (times_s.empty()) return {};
  const auto windows = static_cast<std::size_t>((times_s.back() - times_s.front()) / window_s);
  std::vector<double> counts(windows, 0);
  for (const double t : times_s) {
    const auto w = static_cast<std::size_t>((t - times_s.front()) / window_s);
    if (w < windows) counts[w] += 1;
  }
  return counts;
}

void describe_arrivals(const RequestTrace& trace, RequestInfo& out) {
  const auto times = arrival_times_s(trace);
  auto gaps = gaps_of(times);
  out.span_s = trace.span_s();
  out.rate = out.span_s > 0 ? static_cast<double>(times.size()) / out.span_s : 0;
  out.clock = check_clock(gaps);
  out.distinct_times = times.empty() ? 0 : 1;
  for (const double gap : gaps) {
    out.distinct_times += gap > 0;
    out.long_gaps += gap > 60;
  }
  out.gaps_s = summarise(std::move(gaps));
  out.idc_1s = dispersion_index(times, 1);
  out.idc_10s = dispersion_index(times, 10);
  out.idc_60s = dispersion_index(times, 60);
  const auto minutes = summarise(counts_per(times, 60));
  out.peak_to_mean = minutes.mean > 0 ? minutes.max / minutes.mean : 0;
  const auto hours = counts_per(times, 3600);
  if (hours.size() >= 48) out.hourly_autocorrelation_1d = autocorrelation(hours, 24);
  if (hours.size() >= 336) out.hourly_autocorrelation_7d = autocorrelation(hours, 168);
}

std::string line(std::string_view what, const Summary& s) {
  return fmt::format(
      "  {:<15} mean {:.6g}  std {:.5g}  p50 {:.6g}  p90 {:.6g}  p99 {:.6g}  max "
      "{:.6g}\n",
      what, s.mean, s.std, s.p50, s.p90, s.p99, s.max);
}

}  // namespace

std::vector<double> arrival_times_s(const RequestTrace& trace) {
  std::vector<double> times;
  times.reserve(trace.rows.size());
  for (const Request& row : trace.rows) times.push_back(row.time_s());
  return times;
}

std::vector<double> gaps_of(std::span<const double> times_s) {
  std::vector<double> gaps;
  if (times_s.empty()) return gaps;
  gaps.reserve(times_s.size() - 1);
  for (std::size_t i = 1; i < times_s.size(); ++i) {
    // Whole nanoseconds, so that equal gaps compare equal.
    gaps.push_back(std::round((times_s[i] - times_s[i - 1]) * 1e9) / 1e9);
  }
  return gaps;
}

RequestInfo describe_requests(const RequestTrace& trace) {
  RequestInfo out;
  out.requests = static_cast<std::int64_t>(trace.rows.size());
  for (const std::string& label : trace.labels) out.labels.push_back({label, 0, 0});
  std::vector<double> input, output;
  for (const Request& row : trace.rows) {
    input.push_back(row.input_tokens);
    output.push_back(row.output_tokens);
    out.failed += row.failed;
    out.empty += row.input_tokens == 0 && row.output_tokens == 0;
    ++out.labels[row.label].requests;
    out.labels[row.label].failed += row.failed;
  }
  out.length_spearman = spearman(input, output);
  out.input_tokens = summarise(std::move(input));
  out.output_tokens = summarise(std::move(output));
  if (trace.has_times) describe_arrivals(trace, out);
  out.sessions = describe_sessions(trace);
  out.prefix = describe_prefix(trace);
  return out;
}

Json info_json(const RequestInfo& info) {
  Json labels = Json::array();
  for (const LabelStats& each : info.labels) {
    labels.push_back({{"label", each.label}, {"requests", each.requests}, {"failed", each.failed}});
  }
  return {{"requests", info.requests},
          {"failed", info.failed},
          {"empty", info.empty},
          {"span_s", info.span_s},
          {"rate", info.rate},
          {"gaps_s", info.gaps_s.json()},
          {"clock",
           {{"quantised", info.clock.quantised},
            {"distinct_share", info.clock.distinct_share},
            {"zero_share", info.clock.zero_share},
            {"step_s", info.clock.step_s}}},
          {"distinct_times", info.distinct_times},
          {"gaps_above_60s", info.long_gaps},
          {"idc", {{"1s", info.idc_1s}, {"10s", info.idc_10s}, {"60s", info.idc_60s}}},
          {"peak_to_mean_per_minute", info.peak_to_mean},
          {"hourly_autocorrelation",
           {{"1d", info.hourly_autocorrelation_1d}, {"7d", info.hourly_autocorrelation_7d}}},
          {"input_tokens", info.input_tokens.json()},
          {"output_tokens", info.output_tokens.json()},
          {"length_spearman", info.length_spearman},
          {"sessions",
           {{"sessions", info.sessions.sessions},
            {"requests", info.sessions.requests},
            {"turns", info.sessions.turns.json()},
            {"single_share", info.sessions.single_share},
            {"up_to_four_share", info.sessions.up_to_four_share},
            {"gap_s", info.sessions.gap_s.json()}}},
          {"prefix",
           {{"blocks", info.prefix.blocks},
            {"distinct_blocks", info.prefix.distinct},
            {"reused_blocks", info.prefix.reused_blocks},
            {"tokens", info.prefix.tokens},
            {"reused_tokens", info.prefix.reused_tokens}}},
          {"labels", std::move(labels)}};
}

std::string info_text(const RequestTrace& trace, const RequestInfo& info) {
  const auto share = [](std::int64_t part, std::int64_t whole) {
    return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  std::string out = fmt::format("{} ({}): {} requests", trace.name, trace.format, info.requests);
  if (trace.has_times) {
    out += fmt::format(" in {:.1f} s ({}), {:.3f}/s\n", info.span_s, human_duration(info.span_s),
                       info.rate);
    out += line("gaps (s)", info.gaps_s);
    out += fmt::format(
        "  {:<15} gap CV {:.3f}  IDC 1 s {:.3f}  10 s {:.3f}  60 s {:.2f}  peak/mean "
        "per minute {:.2f}\n",
        "burstiness", info.gaps_s.cv(), info.idc_1s, info.idc_10s, info.idc_60s, info.peak_to_mean);
    out += fmt::format("  {:<15} {} distinct times, {} gaps above 60 s{}\n", "clock",
                       info.distinct_times, info.long_gaps,
                       info.clock.quantised
                           ? fmt::format("; quantised: step {:g} s, {:.1f} % of gaps are 0, {:.1f} "
                                         "requests a time",
                                         info.clock.step_s, 100 * info.clock.zero_share,
                                         static_cast<double>(info.requests) /
                                             static_cast<double>(info.distinct_times))
                           : std::string());
    if (info.hourly_autocorrelation_1d != 0) {
      out += fmt::format(
          "  {:<15} hourly counts correlate {:.2f} with a day later, {:.2f} with a "
          "week later\n",
          "cycles", info.hourly_autocorrelation_1d, info.hourly_autocorrelation_7d);
    }
  } else {
    out += ", no times\n";
  }
  out += line("input tokens", info.input_tokens);
  out += line("output tokens", info.output_tokens);
  out += fmt::format("  {:<15} Spearman of input and output {:.3f}\n", "", info.length_spearman);
  if (info.failed > 0 || info.empty > 0) {
    out += fmt::format("  {:<15} {} failed ({:.2f} %), {} with no tokens at all ({:.1f} %)\n",
                       "failures", info.failed, share(info.failed, info.requests), info.empty,
                       share(info.empty, info.requests));
  }
  if (info.sessions.sessions > 0) {
    const auto& s = info.sessions;
    out += fmt::format(
        "  {:<15} {} with {} requests; turns mean {:.2f}, median {:g}; {:.1f} % "
        "single, {:.1f} % up to four; gap p50 {:.4g} s, p90 {:.4g} s\n",
        "sessions", s.sessions, s.requests, s.turns.mean, s.turns.p50, 100 * s.single_share,
        100 * s.up_to_four_share, s.gap_s.p50, s.gap_s.p90);
  }
  if (info.prefix.blocks > 0) {
    const auto& p = info.prefix;
    out += fmt::format(
        "  {:<15} {} blocks{}, {} distinct; with an endless cache {:.1f} % of blocks", "prefixes",
        p.blocks, trace.block_tokens > 0 ? fmt::format(" of {} tokens", trace.block_tokens) : "",
        p.distinct, share(p.reused_blocks, p.blocks));
    out += p.tokens > 0 ? fmt::format(" and {:.1f} % of tokens are reused\n",
                                      share(p.reused_tokens, p.tokens))
                        : " are reused\n";
  }
  for (const LabelStats& each : info.labels) {
    if (info.labels.size() == 1 && each.label.empty()) break;
    out += fmt::format("  {:<15} {}: {} requests, {:.2f} % failed\n", "", each.label, each.requests,
                       share(each.failed, each.requests));
  }
  return out;
}

}  // namespace weft::workload
