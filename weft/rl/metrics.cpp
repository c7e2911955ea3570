#include "weft/rl/metrics.h"

#include <cmath>

namespace weft::rl {

Json to_json(const StepMetrics& m) {
  Json j = Json::object();
  // JSON has no NaN: a number that is none is written as null.
  const auto number = [&](const char* key, double value) {
    j[key] = std::isfinite(value) ? Json(value) : Json(nullptr);
  };
  j["step"] = m.step;
  j["version"] = m.version;
  j["samples"] = m.samples;
  j["groups"] = m.groups;
  j["tokens"] = m.tokens;
  number("reward_mean", m.reward_mean);
  number("reward_min", m.reward_min);
  number("reward_max", m.reward_max);
  number("reward_deviation", m.reward_deviation);
  number("exact", m.exact);
  number("pass_at_group", m.pass_at_group);
  number("advantage_min", m.advantage_min);
  number("advantage_max", m.advantage_max);
  number("objective", m.objective);
  number("policy_objective", m.policy_objective);
  number("value_loss", m.value_loss);
  number("kl_reference", m.kl_reference);
  number("kl_coefficient", m.kl_coefficient);
  number("approx_kl", m.approx_kl);
  number("clip_low", m.clip_low);
  number("clip_high", m.clip_high);
  number("dual_clip", m.dual_clip);
  number("entropy", m.entropy);
  number("ratio_max", m.ratio_max);
  number("effective_sample_size", m.effective_sample_size);
  number("logp_mismatch_mean", m.mismatch_mean);
  number("logp_mismatch_max", m.mismatch_max);
  number("length_mean", m.length_mean);
  number("length_max", m.length_max);
  number("cut", m.cut);
  number("filtered_groups", m.filtered_groups);
  j["sampled_groups"] = m.sampled_groups;
  j["dropped_groups"] = m.dropped_groups;
  j["reward_errors"] = m.reward_errors;
  number("grad_norm", m.grad_norm);
  number("lr", m.lr);
  j["skipped"] = m.skipped;
  if (m.skipped) j["skip_reason"] = m.skip_reason;
  j["entropy_alarm"] = m.entropy_alarm;
  Json time = Json::object();
  time["generate_s"] = m.generate_s;
  time["reward_s"] = m.reward_s;
  time["logp_s"] = m.logp_s;
  time["update_s"] = m.update_s;
  time["sync_s"] = m.sync_s;
  time["total_s"] = m.total_s;
  time["tokens_per_s"] = m.tokens_per_s;
  j["time"] = std::move(time);
  return j;
}

bool entropy_collapsed(double entropy, double exact, std::int64_t steps, double entropy_limit,
                       double exact_limit) {
  return steps >= kAlarmWindow && entropy < entropy_limit && exact < exact_limit;
}

}  // namespace weft::rl
