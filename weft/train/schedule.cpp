#include "weft/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft::train {

std::string_view to_string(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kConstant:
      return "constant";
    case ScheduleKind::kLinear:
      return "linear";
    case ScheduleKind::kCosine:
      return "cosine";
    case ScheduleKind::kWsd:
      return "wsd";
  }
  return "?";
}

Result<ScheduleKind> schedule_from_string(std::string_view name) {
  for (const ScheduleKind kind : {ScheduleKind::kConstant, ScheduleKind::kLinear,
                                  ScheduleKind::kCosine, ScheduleKind::kWsd}) {
    if (to_string(kind) == name) return kind;
  }
  return fail(ErrorCode::kInvalidArgument,
              "schedule \"{}\" is not one of constant, linear, cosine, wsd", name);
}

Status validate(const Schedule& schedule) {
  if (!(schedule.peak > 0.0) || !std::isfinite(schedule.peak)) {
    return fail(ErrorCode::kOutOfRange, "the learning rate must be above 0, not {}", schedule.peak);
  }
  if (schedule.steps < 1) {
    return fail(ErrorCode::kOutOfRange, "steps must be at least 1, not {}", schedule.steps);
  }
  if (schedule.warmup_steps < 0 || schedule.warmup_steps > schedule.steps) {
    return fail(ErrorCode::kOutOfRange, "warmup_steps must lie in 0..steps ({}), not {}",
                schedule.steps, schedule.warmup_steps);
  }
  if (schedule.decay_steps < 0 || schedule.decay_steps > schedule.steps - schedule.warmup_steps) {
    return fail(ErrorCode::kOutOfRange,
                "decay_steps must lie in 0..steps - warmup_steps ({}), not {}",
                schedule.steps - schedule.warmup_steps, schedule.decay_steps);
  }
  if (!(schedule.final_fraction >= 0.0 && schedule.final_fraction <= 1.0)) {
    return fail(ErrorCode::kOutOfRange, "final_fraction must lie in 0..1, not {}",
                schedule.final_fraction);
  }
  return {};
}

double learning_rate(const Schedule& schedule, std::int64_t step) {
  step = std::clamp<std::int64_t>(step, 0, schedule.steps - 1);
  if (step < schedule.warmup_steps) {
    return schedule.peak * static_cast<double>(step + 1) /
           static_cast<double>(schedule.warmup_steps);
  }
  const std::int64_t decay_begin = schedule.kind == ScheduleKind::kWsd
                                       ? schedule.steps - schedule.decay_steps
                                       : schedule.warmup_steps;
  // 0 at the first step of the decay, 1 when the run is over (as in transformers).
  double progress = 0.0;
  if (step >= decay_begin) {
    progress =
        static_cast<double>(step - decay_begin) / static_cast<double>(schedule.steps - decay_begin);
  }
  double shape = 1.0;
  switch (schedule.kind) {
    case ScheduleKind::kConstant:
      return schedule.peak;
    case ScheduleKind::kLinear:
    case ScheduleKind::kWsd:
      shape = 1.0 - progress;
      break;
    case ScheduleKind::kCosine:
      shape = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
      break;
  }
  return schedule.peak * (schedule.final_fraction + (1.0 - schedule.final_fraction) * shape);
}

}  // namespace weft::train
