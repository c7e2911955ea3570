#include "weft/workload/request_compare.h"

#include <algorithm>
#include <cmath>

#include "weft/base/result.h"

namespace weft::workload {
namespace {

struct Samples {
  std::vector<double> gaps, input, output;
};

Samples sorted_samples(const RequestTrace& trace) {
  Samples out;
  if (trace.has_times) out.gaps = gaps_of(arrival_times_s(trace));
  for (const Request& row : trace.rows) {
    out.input.push_back(row.input_tokens);
    out.output.push_back(row.output_tokens);
  }
  for (auto* values : {&out.gaps, &out.input, &out.output}) std::ranges::sort(*values);
  return out;
}

}  // namespace

Result<RequestTrace> slice_requests(const RequestTrace& trace, const SliceOptions& options) {
  RequestTrace out = trace;
  out.rows.clear();
  out.block_ids.clear();
  if (trace.rows.empty()) return fail(ErrorCode::kInvalidArgument, "{} has no rows", trace.name);
  std::optional<std::uint16_t> label;
  if (!options.label.empty()) {
    const auto found = std::ranges::find(trace.labels, options.label);
    if (found == trace.labels.end()) {
      std::string all;
      for (const auto& each : trace.labels) all += fmt::format(" '{}'", each);
      return fail(ErrorCode::kInvalidArgument, "{} has no label '{}'; it has:{}", trace.name,
                  options.label, all);
    }
    label = static_cast<std::uint16_t>(found - trace.labels.begin());
  }
  const std::int64_t first = trace.rows.front().time_ns;
  std::optional<std::int64_t> zero;
  for (const Request& row : trace.rows) {
    const double at = static_cast<double>(row.time_ns - first) / kNsPerSecond;
    if (at < options.from_s || at >= options.until_s) continue;
    if (label && row.label != *label) continue;
    if (options.rows > 0 && static_cast<std::int64_t>(out.rows.size()) >= options.rows) break;
    if (!zero) zero = row.time_ns;
    Request cut = row;
    const std::int64_t since = row.time_ns - *zero;
    cut.time_ns =
        options.speed == 1 ? since : std::llround(static_cast<double>(since) / options.speed);
    const auto blocks = trace.blocks(row);
    cut.first_block = static_cast<std::uint32_t>(out.block_ids.size());
    out.block_ids.insert(out.block_ids.end(), blocks.begin(), blocks.end());
    out.rows.push_back(cut);
  }
  if (out.rows.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "{}: no request lies between {:g} and {:g} s; the trace lasts {:g} s", trace.name,
                options.from_s, options.until_s, trace.span_s());
  }
  if (out.zero_unix_ns) *out.zero_unix_ns += *zero;
  return out;
}

RequestComparison compare_requests(const RequestTrace& a, const RequestTrace& b) {
  RequestComparison out{.a = describe_requests(a), .b = describe_requests(b)};
  const Samples x = sorted_samples(a), y = sorted_samples(b);
  out.gap_ks = ks_distance(x.gaps, y.gaps);
  out.input_ks = ks_distance(x.input, y.input);
  out.output_ks = ks_distance(x.output, y.output);
  return out;
}

Json RequestComparison::json() const {
  return {{"a", info_json(a)},
          {"b", info_json(b)},
          {"ks", {{"gaps", gap_ks}, {"input_tokens", input_ks}, {"output_tokens", output_ks}}}};
}

std::string RequestComparison::text(const std::string& name_a, const std::string& name_b) const {
  std::string out = fmt::format("A: {}\nB: {}\n\n{:<22}{:>14}{:>14}{:>10}\n", name_a, name_b, "",
                                "A", "B", "B / A");
  const auto row = [&](std::string_view what, double x, double y) {
    const std::string ratio = x != 0 ? fmt::format("{:.3f}", y / x) : "";
    out += fmt::format("{:<22}{:>14.6g}{:>14.6g}{:>10}\n", what, x, y, ratio);
  };
  row("requests", static_cast<double>(a.requests), static_cast<double>(b.requests));
  row("span (s)", a.span_s, b.span_s);
  row("rate (1/s)", a.rate, b.rate);
  row("gap CV", a.gaps_s.cv(), b.gaps_s.cv());
  row("gap p50 (s)", a.gaps_s.p50, b.gaps_s.p50);
  row("gap p99 (s)", a.gaps_s.p99, b.gaps_s.p99);
  row("IDC 1 s", a.idc_1s, b.idc_1s);
  row("IDC 10 s", a.idc_10s, b.idc_10s);
  row("IDC 60 s", a.idc_60s, b.idc_60s);
  row("input mean", a.input_tokens.mean, b.input_tokens.mean);
  row("input p99", a.input_tokens.p99, b.input_tokens.p99);
  row("output mean", a.output_tokens.mean, b.output_tokens.mean);
  row("output p99", a.output_tokens.p99, b.output_tokens.p99);
  row("length Spearman", a.length_spearman, b.length_spearman);
  row("failed", static_cast<double>(a.failed), static_cast<double>(b.failed));
  row("turns mean", a.sessions.turns.mean, b.sessions.turns.mean);
  out += fmt::format("\nKolmogorov-Smirnov distance: gaps {:.4f}, input {:.4f}, output {:.4f}\n",
                     gap_ks, input_ks, output_ks);
  return out;
}

}  // namespace weft::workload
