// Learning-rate schedules: pure functions of the step.
#pragma once

#include <cstdint>
#include <string_view>

#include "weft/base/result.h"

namespace weft::train {

enum class ScheduleKind {
  kConstant,
  kLinear,  // from the peak to `final_fraction` of it when the run is over
  kCosine,  // half a cosine, same ends
  kWsd,     // warm-up, stable, then linear decay over the last `decay_steps`
};
std::string_view to_string(ScheduleKind kind);
Result<ScheduleKind> schedule_from_string(std::string_view name);

struct Schedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  double peak = 1e-3;
  std::int64_t steps = 1;         // of the whole run
  std::int64_t warmup_steps = 0;  // linear from peak / warmup_steps
  std::int64_t decay_steps = 0;   // kWsd
  double final_fraction = 0.0;    // of the peak, when the run is over
};
Status validate(const Schedule& schedule);  // names the field

// Rate of step `step`, counted from 0. Steps past the end keep the last rate.
double learning_rate(const Schedule& schedule, std::int64_t step);

}  // namespace weft::train
