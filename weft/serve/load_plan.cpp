#include "weft/serve/load_plan.h"

#include <algorithm>
#include <cmath>

#include "weft/workload/request_model.h"

namespace weft::serve {
namespace {

using workload::Distribution;
using workload::Family;

constexpr std::int64_t kMaxRequests = 10'000'000;

class Lengths {
 public:
  Lengths(const PlanOptions& options, const workload::RequestTrace* trace)
      : options_(options), rng_(options.seed, RngUse::kData, 0, 30) {
    if (trace == nullptr) return;
    for (const auto& row : trace->rows)
      if (!row.failed && row.input_tokens > 0)
        rows_.push_back({row.input_tokens, row.output_tokens});
  }

  // Draws whole rows of the trace, or from the two distributions.
  void draw(PlannedRequest& request) {
    if (!rows_.empty()) {
      const auto& pair = rows_[rng_.next_below(static_cast<std::uint32_t>(rows_.size()))];
      return set(request, pair.input, pair.output);
    }
    const double input = options_.input.draw(rng_);
    set(request, input, options_.output.draw(rng_));
  }

  void set(PlannedRequest& request, double input, double output) {
    const auto tokens = [&](double value, double scale, std::uint32_t cap) {
      const double scaled = std::clamp(std::round(value * scale), 1.0, 16'777'216.0);
      if (cap > 0 && scaled > cap) {
        ++cut_;
        return cap;
      }
      return static_cast<std::uint32_t>(scaled);
    };
    request.input_tokens = tokens(input, options_.input_scale, options_.max_input);
    request.output_tokens = tokens(output, options_.output_scale, options_.max_output);
  }

  std::int64_t cut() const { return cut_; }

 private:
  const PlanOptions& options_;
  Rng rng_;
  std::vector<workload::LengthPair> rows_;
  std::int64_t cut_ = 0;
};

// Arrivals of one stage at a constant rate.
void add_renewals(LoadPlan& plan, const LoadStage& stage, std::uint32_t index, double shape,
                  Lengths& lengths, const PlanOptions& options) {
  const Distribution gaps =
      shape == 1
          ? Distribution{.family = Family::kExponential, .a = 1 / stage.rate, .table = {}}
          : Distribution{
                .family = Family::kGamma, .a = shape, .b = 1 / (shape * stage.rate), .table = {}};
  Rng rng(options.seed, RngUse::kData, index, 31);
  for (double time = stage.begin_s + gaps.draw(rng); time < stage.end_s; time += gaps.draw(rng)) {
    if (static_cast<std::int64_t>(plan.requests.size()) >= kMaxRequests) return;
    PlannedRequest request{.at_ns = std::llround(time * 1e9), .stage = index, .blocks = {}};
    lengths.draw(request);
    plan.requests.push_back(std::move(request));
  }
}

void add_ramp(LoadPlan& plan, Lengths& lengths, const PlanOptions& options) {
  const double from = options.rate_from, to = options.rate_to, duration = options.duration_s;
  plan.stages.push_back({"ramp", 0, duration, (from + to) / 2, 0});
  Rng rng(options.seed, RngUse::kData, 0, 31);
  const Distribution one{.family = Family::kExponential, .a = 1, .table = {}};
  // Expected arrivals by time t: from t + (to - from) t^2 / (2 duration), inverted.
  double expected = 0;
  for (;;) {
    expected += one.draw(rng);
    const double a = (to - from) / (2 * duration);
    const double time =
        std::abs(a) < 1e-12
            ? expected / from
            : (-from + std::sqrt(std::max(0.0, from * from + 4 * a * expected))) / (2 * a);
    if (!(time < duration) || static_cast<std::int64_t>(plan.requests.size()) >= kMaxRequests)
      return;
    PlannedRequest request{.at_ns = std::llround(time * 1e9), .blocks = {}};
    lengths.draw(request);
    plan.requests.push_back(std::move(request));
  }
}

Status add_replay(LoadPlan& plan, const workload::RequestTrace& trace, Lengths& lengths,
                  const PlanOptions& options, std::vector<std::string>& notes) {
  if (!trace.has_times) {
    return fail(ErrorCode::kInvalidArgument,
                "{} has no times to replay; use it with --mode poisson, gamma or closed",
                trace.name);
  }
  if (trace.rows.empty()) {
    return fail(ErrorCode::kInvalidArgument, "{} has no requests", trace.name);
  }
  std::int64_t failed = 0, empty = 0;
  const std::int64_t first = trace.rows.front().time_ns;
  const bool scaled = options.input_scale != 1 || options.max_input > 0;
  if (!trace.block_ids.empty() && scaled) {
    notes.emplace_back("prompt blocks are kept only as far as the scaled prompts reach");
  }
  for (const auto& row : trace.rows) {
    failed += row.failed;
    empty += !row.failed && row.input_tokens == 0;
    if (row.failed || row.input_tokens == 0) continue;
    const double at = static_cast<double>(row.time_ns - first) / options.speed;
    if (options.duration_s > 0 && at >= options.duration_s * 1e9) break;
    if (options.count > 0 && static_cast<std::int64_t>(plan.requests.size()) >= options.count)
      break;
    PlannedRequest request{.at_ns = std::llround(at), .session = row.session, .blocks = {}};
    lengths.set(request, row.input_tokens, row.output_tokens);
    const auto blocks = trace.blocks(row);
    request.blocks.assign(blocks.begin(), blocks.end());
    plan.requests.push_back(std::move(request));
  }
  if (failed > 0)
    notes.push_back(fmt::format("{} rows that failed at the source are left out", failed));
  if (empty > 0) notes.push_back(fmt::format("{} rows without input tokens are left out", empty));
  const double end =
      plan.requests.empty() ? 0 : static_cast<double>(plan.requests.back().at_ns) / 1e9;
  plan.block_tokens = trace.block_tokens;
  plan.stages.push_back(
      {"replay", 0, end, end > 0 ? static_cast<double>(plan.requests.size()) / end : 0, 0});
  return {};
}

}  // namespace

Result<LoadPlan> plan_load(const PlanOptions& options, const workload::RequestTrace* trace,
                           std::vector<std::string>& notes) {
  LoadPlan plan;
  plan.mode = options.mode;
  plan.seed = options.seed;
  Lengths lengths(options, trace);
  const auto positive = [](double value, const char* flag) -> Status {
    if (value > 0 && std::isfinite(value)) return {};
    return fail(ErrorCode::kOutOfRange, "{} must be above 0, not {}", flag, value);
  };
  if (options.mode == "replay") {
    if (trace == nullptr) {
      return fail(ErrorCode::kInvalidArgument, "--mode replay needs --trace FILE");
    }
    plan.session_closed = options.session_closed;
    WEFT_TRY(add_replay(plan, *trace, lengths, options, notes));
  } else {
    WEFT_TRY(positive(options.duration_s, "--duration"));
    if (options.mode == "poisson" || options.mode == "gamma") {
      WEFT_TRY(positive(options.rate, "--rate"));
      if (options.mode == "gamma") WEFT_TRY(positive(options.shape - 1e-3, "--shape (less 0.001)"));
      plan.stages.push_back({options.mode, 0, options.duration_s, options.rate, 0});
      add_renewals(plan, plan.stages[0], 0, options.mode == "gamma" ? options.shape : 1, lengths,
                   options);
    } else if (options.mode == "sweep") {
      if (options.levels.empty()) {
        return fail(ErrorCode::kInvalidArgument, "--mode sweep needs --levels RATE,RATE,...");
      }
      for (std::size_t i = 0; i < options.levels.size(); ++i) {
        WEFT_TRY(positive(options.levels[i], "--levels"));
        const double begin = static_cast<double>(i) * options.duration_s;
        plan.stages.push_back({fmt::format("{:g}/s", options.levels[i]), begin,
                               begin + options.duration_s, options.levels[i], 0});
        add_renewals(plan, plan.stages.back(), static_cast<std::uint32_t>(i), 1, lengths, options);
      }
    } else if (options.mode == "ramp") {
      WEFT_TRY(positive(options.rate_from, "--from"));
      WEFT_TRY(positive(options.rate_to, "--to"));
      add_ramp(plan, lengths, options);
    } else if (options.mode == "closed") {
      if (options.concurrency < 1) {
        return fail(ErrorCode::kOutOfRange, "--concurrency {} must be at least 1",
                    options.concurrency);
      }
      plan.closed = true;
      plan.stages.push_back({fmt::format("{} at once", options.concurrency), 0, options.duration_s,
                             0, options.concurrency});
      // What may be needed: taken in order until the time is over.
      const std::int64_t n = options.count > 0 ? options.count : 100'000;
      for (std::int64_t i = 0; i < n; ++i) {
        PlannedRequest request{.blocks = {}};
        lengths.draw(request);
        plan.requests.push_back(std::move(request));
      }
    } else {
      return fail(ErrorCode::kInvalidArgument,
                  "--mode {} is none of replay, poisson, gamma, closed, ramp, sweep", options.mode);
    }
    if (options.count > 0 && static_cast<std::int64_t>(plan.requests.size()) > options.count) {
      plan.requests.resize(static_cast<std::size_t>(options.count));
    }
  }
  if (plan.requests.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "no request falls into the run: a longer --duration or a higher rate is needed");
  }
  if (lengths.cut() > 0 && !plan.closed) {
    notes.push_back(
        fmt::format("{} lengths were cut to --max-input or --max-output", lengths.cut()));
  }
  return plan;
}

}  // namespace weft::serve
