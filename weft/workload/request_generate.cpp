// Drawing a trace from a model.
#include <algorithm>
#include <cmath>

#include "weft/base/hash.h"
#include "weft/workload/request_model.h"
#include "weft/workload/special_functions.h"

namespace weft::workload {
namespace {

// The streams of a synthesis: each question has its own draws, so that changing one part
// of a model leaves the others' draws as they were.
enum Stream : std::uint32_t { kGaps, kLengths, kSessions, kLabels, kSpread };

constexpr std::int64_t kMaxRequests = 100'000'000;

// Maps operational time (requests expected so far) to seconds: the windows' rates, again
// and again.
class Clock {
 public:
  Clock(const RequestModel& model, double scale) : model_(model), scale_(scale) {}

  // The time at which `expected` requests are due; calls must not go back.
  double at(double expected) {
    for (;;) {
      const double rate = model_.rates[window_ % model_.rates.size()] * scale_;
      const double whole = rate * model_.window_s;
      if (expected < done_ + whole) {
        return static_cast<double>(window_) * model_.window_s + (expected - done_) / rate;
      }
      done_ += whole;
      ++window_;
    }
  }

 private:
  const RequestModel& model_;
  double scale_;
  std::size_t window_ = 0;
  double done_ = 0;
};

// Gaps in operational time.
class GapSource {
 public:
  GapSource(const RequestModel& model, std::uint64_t seed)
      : model_(model), rng_(seed, RngUse::kData, 0, kGaps) {}

  double next() {
    if (model_.gap_form == GapForm::kDistribution) return model_.gaps.draw(rng_);
    const auto pool = static_cast<std::uint32_t>(model_.gap_pool.size());
    if (left_ == 0) {
      at_ = rng_.next_below(pool);
      left_ = std::min(model_.gap_block, pool);
    }
    --left_;
    const double gap = model_.gap_pool[at_];
    at_ = (at_ + 1) % pool;
    return gap;
  }

 private:
  const RequestModel& model_;
  Rng rng_;
  std::uint32_t at_ = 0, left_ = 0;
};

std::uint32_t whole_tokens(double x) {
  return static_cast<std::uint32_t>(std::clamp(std::round(x), 1.0, 16'777'216.0));
}

// The quantile of a distribution by bisection on its cdf.
double quantile_of(const Distribution& d, double p) {
  if (d.family == Family::kConstant) return d.a;
  double low = 0, high = 1;
  while (d.cdf(high) < p && high < 1e9) high *= 2;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (d.cdf(middle) < p ? low : high) = middle;
  }
  return high;
}

class LengthSource {
 public:
  LengthSource(const RequestModel& model, std::uint64_t seed)
      : model_(model), rng_(seed, RngUse::kData, 0, kLengths) {}

  LengthPair next() {
    if (!model_.length_pool.empty()) {
      return model_
          .length_pool[rng_.next_below(static_cast<std::uint32_t>(model_.length_pool.size()))];
    }
    if (model_.length_rho == 0) {
      const double input = model_.input.draw(rng_);
      return {whole_tokens(input), whole_tokens(model_.output.draw(rng_))};
    }
    const double z = rng_.next_normal();
    const double rho = model_.length_rho;
    const double w = rho * z + std::sqrt(1 - rho * rho) * static_cast<double>(rng_.next_normal());
    const auto value = [](const Distribution& d, double normal) {
      return whole_tokens(quantile_of(d, std::clamp(normal_cdf(normal), 1e-9, 1 - 1e-9)));
    };
    return {value(model_.input, z), value(model_.output, w)};
  }

 private:
  const RequestModel& model_;
  Rng rng_;
};

std::vector<double> draw_arrivals(const RequestModel& model, const SynthesisOptions& options,
                                  double scale) {
  const double duration = options.duration_s > 0
                              ? options.duration_s
                              : model.window_s * static_cast<double>(model.rates.size());
  const auto enough = [&](std::size_t made, double time) {
    return options.count > 0 ? static_cast<std::int64_t>(made) >= options.count : time >= duration;
  };
  std::vector<double> times;
  Clock clock(model, scale);
  if (model.gap_form == GapForm::kBatches) {
    // Each tick gets a batch whose mean is what the rate asks of a step.
    Rng gaps(options.seed, RngUse::kData, 0, kGaps);
    Rng spread(options.seed, RngUse::kData, 0, kSpread);
    double carry = 0;
    for (std::int64_t tick = 0;; ++tick) {
      const double begin = static_cast<double>(tick) * model.step_s;
      if (enough(times.size(), begin)) break;
      const auto window = static_cast<std::size_t>(begin / model.window_s) % model.rates.size();
      const double wanted =
          model.batch.draw(gaps) * model.rates[window] * scale * model.step_s + carry;
      const double count = std::floor(wanted);
      carry = wanted - count;
      for (double i = 0; i < count && !(options.count > 0 && enough(times.size(), 0)); ++i) {
        times.push_back(begin + static_cast<double>(spread.next_uniform()) * model.step_s);
      }
    }
    std::ranges::sort(times);
    return times;
  }
  GapSource gaps(model, options.seed);
  double expected = 0;
  for (;;) {
    expected += gaps.next();
    const double time = clock.at(expected);
    if (enough(times.size(), time)) break;
    if (static_cast<std::int64_t>(times.size()) >= kMaxRequests) break;
    times.push_back(time);
  }
  return times;
}

// Prompt blocks of one request: a chain of hashes, first over the shared prefix, then over
// the session's own text, so that a later turn repeats the blocks of the one before.
void add_blocks(RequestTrace& trace, Request& row, std::uint64_t own,
                const SynthesisOptions& options) {
  const std::uint32_t block = options.block_tokens;
  row.first_block = static_cast<std::uint32_t>(trace.block_ids.size());
  row.block_count = (row.input_tokens + block - 1) / block;
  std::uint64_t chain = options.seed;
  for (std::uint32_t b = 0; b < row.block_count; ++b) {
    const bool shared = std::uint64_t{b + 1} * block <= options.shared_prefix_tokens;
    const bool partial = std::uint64_t{b + 1} * block > row.input_tokens;
    const std::uint64_t content[3] = {chain, shared ? 0 : own + 1,
                                      partial ? row.input_tokens : std::uint64_t{0}};
    chain = xxh3_64(std::as_bytes(std::span(content)));
    trace.block_ids.push_back(chain >> 11);  // 53 bits: exact in JSON and in doubles
  }
}

}  // namespace

Result<RequestTrace> synthesise(const RequestModel& model, const SynthesisOptions& options) {
  const double mean_rate = model.mean_rate();
  if (!(mean_rate > 0)) return fail(ErrorCode::kInvalidArgument, "the model's mean rate is 0");
  if (options.count > kMaxRequests) {
    return fail(ErrorCode::kOutOfRange, "{} requests; at most {} are made at once", options.count,
                kMaxRequests);
  }
  if (options.shared_prefix_tokens > 0 && options.block_tokens == 0) {
    return fail(ErrorCode::kInvalidArgument, "a shared prefix needs a block size (--block-tokens)");
  }
  const double scale = options.rate > 0 ? options.rate / mean_rate : 1;
  RequestTrace trace;
  trace.format = "generated";
  trace.name = model.source;
  trace.block_tokens = options.block_tokens;
  const Json identity = {{"model", model.json()},
                         {"count", options.count},
                         {"duration_s", options.duration_s},
                         {"rate", options.rate},
                         {"seed", options.seed},
                         {"block_tokens", options.block_tokens},
                         {"shared_prefix_tokens", options.shared_prefix_tokens}};
  trace.parameters = to_hex(sha256(bytes_of(dump_json(identity))));

  LengthSource lengths(model, options.seed);
  Rng session_rng(options.seed, RngUse::kData, 0, kSessions);
  Rng label_rng(options.seed, RngUse::kData, 0, kLabels);
  for (const auto& [name, share] : model.labels) trace.labels.push_back(name);
  if (trace.labels.empty()) trace.labels.emplace_back();

  const auto add = [&](double time, std::int32_t session, std::uint16_t label) -> Request& {
    Request row;
    row.time_ns = std::llround(time * 1e9);
    const LengthPair pair = lengths.next();
    row.input_tokens = pair.input;
    row.output_tokens = pair.output;
    row.session = session;
    row.label = label;
    if (label < model.label_failures.size()) {
      row.failed = static_cast<double>(label_rng.next_uniform()) < model.label_failures[label];
    }
    trace.rows.push_back(row);
    return trace.rows.back();
  };
  for (const double time : draw_arrivals(model, options, scale)) {
    std::uint16_t label = 0;
    if (!model.labels.empty()) {
      double u = label_rng.next_uniform();
      while (label + 1U < model.labels.size() && u >= model.labels[label].second)
        u -= model.labels[label++].second;
    }
    if (model.session_share <= 0 ||
        static_cast<double>(session_rng.next_uniform()) >= model.session_share) {
      add(time, -1, label);
      continue;
    }
    const auto session = static_cast<std::int32_t>(trace.sessions.size());
    trace.sessions.push_back(fmt::format("s{}", session));
    const double turns = std::max(1.0, std::round(model.turns.draw(session_rng)));
    double at = time;
    std::uint64_t before = 0;  // tokens of the conversation so far
    for (double turn = 0; turn < turns; ++turn) {
      if (turn > 0) at += model.think_s.draw(session_rng);
      Request& row = add(at, session, label);
      if (options.block_tokens > 0) {
        row.input_tokens = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(before + row.input_tokens, 16'777'216));
        before = std::uint64_t{row.input_tokens} + row.output_tokens;
      }
    }
  }
  std::ranges::stable_sort(trace.rows, {}, &Request::time_ns);
  if (options.count > 0 && static_cast<std::int64_t>(trace.rows.size()) > options.count) {
    trace.rows.resize(static_cast<std::size_t>(options.count));
  }
  if (options.block_tokens > 0) {
    for (std::size_t i = 0; i < trace.rows.size(); ++i) {
      Request& row = trace.rows[i];
      const std::uint64_t own =
          row.session >= 0 ? static_cast<std::uint64_t>(row.session) : (std::uint64_t{1} << 40) + i;
      add_blocks(trace, row, own, options);
    }
  }
  return trace;
}

}  // namespace weft::workload
