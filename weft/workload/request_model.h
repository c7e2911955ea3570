// A model of a request trace: what `weft trace fit` writes and `weft trace gen` draws
// from. Arrivals are a renewal process in operational time, where the mean gap is 1, laid
// over a rate that is constant within each window: one Gamma for all gaps loses the
// moving rate and most of the burstiness (docs/commands/trace.md shows by how much).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/workload/distribution.h"
#include "weft/workload/request.h"

namespace weft::workload {

enum class GapForm {
  kDistribution,  // independent gaps
  kBootstrap,     // blocks of consecutive gaps, drawn from the trace
  kBatches,       // a quantised clock: so many requests at each tick, spread inside it
};

struct LengthPair {
  std::uint32_t input = 0, output = 0;
};

struct RequestModel {
  std::string source;
  // Rates of requests (of first turns, where there are sessions) per second, one for
  // each window; they repeat beyond the last.
  double window_s = 0;
  std::vector<double> rates;

  GapForm gap_form = GapForm::kDistribution;
  Distribution gaps{.family = Family::kExponential, .a = 1, .table = {}};  // mean 1
  std::vector<float> gap_pool;    // kBootstrap: consecutive gaps, mean about 1
  std::uint32_t gap_block = 256;  // gaps that are drawn together
  double step_s = 0;              // kBatches
  Distribution batch;             // kBatches: requests per tick are a draw x rate x step_s

  std::vector<LengthPair> length_pool;  // whole rows; empty: the two below with `length_rho`
  Distribution input, output;
  double length_rho = 0;  // of the Gaussian copula

  double session_share = 0;  // of first turns that open a session of several
  Distribution turns;        // of a session
  Distribution think_s;      // between the arrivals of its turns

  std::vector<std::pair<std::string, double>> labels;  // with their shares and
  std::vector<double> label_failures;                  // share of failed requests in each

  double mean_rate() const;
  Json json() const;
  static Result<RequestModel> from_json(const Json& json);
};

struct FitOptions {
  double window_s = -1;          // below 0: chosen from the rate; 0: one rate for all
  std::string gaps = "auto";     // auto, bootstrap, or a family that gaps can have
  std::string lengths = "rows";  // rows, copula
  std::uint64_t seed = 0;        // which rows a pool keeps, if there are more than fit
};

// Everything that `weft trace fit` reports.
struct FitReport {
  RequestModel model;
  std::vector<Fit> gap_fits;  // of the raw gaps; empty where the clock is quantised
  std::vector<Fit> input_fits, output_fits;
  std::optional<Distribution> gamma_moments;
  std::vector<double> window_gamma_shapes;              // per 20 minutes; 0 where there is no fit
  std::optional<Fit> turns_fit, think_fit, counts_fit;  // counts: per tick of a coarse clock
  std::vector<std::string> notes;
  Json json() const;  // without the model
  std::string text() const;
};
// kInvalidArgument for a trace without times or with under 3 rows.
Result<FitReport> fit_requests(const RequestTrace& trace, const FitOptions& options);

struct SynthesisOptions {
  std::int64_t count = 0;  // requests; 0: as long as `duration_s`
  double duration_s = 0;   // 0: the model's windows once
  double rate = 0;         // mean requests a second; 0: the model's
  std::uint64_t seed = 0;
  std::uint32_t block_tokens = 0;          // with prompt blocks of so many tokens
  std::uint32_t shared_prefix_tokens = 0;  // that all prompts begin with
};
// Equal models and options give equal traces, which carry the hash of both. A next turn's
// prompt begins with the whole turn before it where blocks are made.
Result<RequestTrace> synthesise(const RequestModel& model, const SynthesisOptions& options);

}  // namespace weft::workload
