// Plans of load: which requests, when.
#pragma once

#include <string_view>
#include <vector>

#include "weft/base/result.h"
#include "weft/serve/load.h"
#include "weft/workload/distribution.h"
#include "weft/workload/request.h"

namespace weft::serve {

struct PlanOptions {
  std::string mode = "poisson";                 // replay, poisson, gamma, closed, ramp, sweep
  double rate = 1;                              // requests a second: poisson, gamma
  double shape = 0.25;                          // gamma; 1 is Poisson, below is burstier
  double rate_from = 1, rate_to = 10;           // ramp: rises linearly; sweep: levels between
  std::vector<double> levels;                   // sweep: rates
  int concurrency = 8;                          // closed
  double duration_s = 30;                       // of the run; of each level of a sweep
  std::int64_t count = 0;                       // at most so many requests; 0: by duration
  double speed = 1;                             // replay: times are divided by it
  double input_scale = 1, output_scale = 1;     // of the trace's token counts
  std::uint32_t max_input = 0, max_output = 0;  // 0: no cap
  workload::Distribution input{.family = workload::Family::kConstant, .a = 128, .table = {}};
  workload::Distribution output{.family = workload::Family::kConstant, .a = 32, .table = {}};
  bool session_closed = false;
  std::uint64_t seed = 0;
};

// `trace`: replayed with its times (replay), or the source of lengths for the other modes;
// may be null except for replay. Failed and empty rows of a trace are left out; `notes`
// says how many, and how many lengths were cut.
Result<LoadPlan> plan_load(const PlanOptions& options, const workload::RequestTrace* trace,
                           std::vector<std::string>& notes);

}  // namespace weft::serve
