#include "weft/rl/advantage.h"

#include <cmath>
#include <unordered_map>

#include "weft/base/result.h"

namespace weft::rl {

std::string_view to_string(AdvantageKind kind) {
  switch (kind) {
    case AdvantageKind::kGrpo:
      return "grpo";
    case AdvantageKind::kDrGrpo:
      return "drgrpo";
    case AdvantageKind::kRloo:
      return "rloo";
    case AdvantageKind::kGae:
      return "gae";
    case AdvantageKind::kReinforceBaseline:
      return "reinforce-baseline";
  }
  return "?";
}

std::vector<float> group_advantages(AdvantageKind kind, std::span<const float> rewards,
                                    std::span<const std::int32_t> group) {
  WEFT_CHECK(kind != AdvantageKind::kGae, "GAE works on tokens, not on groups");
  WEFT_CHECK(rewards.size() == group.size(), "{} rewards, {} groups", rewards.size(), group.size());
  struct Sums {
    double count = 0, sum = 0, squares = 0;
  };
  std::unordered_map<std::int32_t, Sums> groups;
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    Sums& s = groups[group[i]];
    s.count += 1;
    s.sum += rewards[i];
  }
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    Sums& s = groups[group[i]];
    const double d = rewards[i] - s.sum / s.count;
    s.squares += d * d;
  }
  std::vector<float> result(rewards.size());
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    const Sums& s = groups[group[i]];
    const bool alone = s.count < 2;
    const double centred = alone ? rewards[i] : rewards[i] - s.sum / s.count;
    double a = centred;
    if (kind == AdvantageKind::kGrpo) {
      const double deviation = alone ? 1.0 : std::sqrt(s.squares / (s.count - 1));
      a = centred / (deviation + 1e-6);
    } else if (kind == AdvantageKind::kRloo && !alone) {
      a = centred * s.count / (s.count - 1);
    }
    result[i] = static_cast<float>(a);
  }
  return result;
}

void Moments::merge(const Moments& other) {
  if (other.count == 0) return;
  const double total = count + other.count;
  const double d = other.mean - mean;
  sum_squares += other.sum_squares + d * d * count * other.count / total;
  mean += d * other.count / total;
  count = total;
}

Moments moments(std::span<const float> values) {
  Moments m;
  m.count = static_cast<double>(values.size());
  if (values.empty()) return m;
  for (float v : values) m.mean += v;
  m.mean /= m.count;
  for (float v : values) m.sum_squares += (v - m.mean) * (v - m.mean);
  return m;
}

void whiten(std::span<float> values, const Moments& over) {
  const double scale = 1.0 / std::sqrt(over.variance() + 1e-8);
  for (float& v : values) v = static_cast<float>((v - over.mean) * scale);
}

Gae generalized_advantages(std::span<const std::int64_t> offsets, std::span<const float> rewards,
                           std::span<const float> values, double gamma, double lambda) {
  WEFT_CHECK(rewards.size() == values.size(), "{} rewards, {} values", rewards.size(),
             values.size());
  Gae result;
  result.advantages.resize(rewards.size());
  result.returns.resize(rewards.size());
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    double next_value = 0, next_advantage = 0;
    for (std::int64_t t = offsets[i + 1] - 1; t >= offsets[i]; --t) {
      const auto k = static_cast<std::size_t>(t);
      const double delta = rewards[k] + gamma * next_value - values[k];
      next_advantage = delta + gamma * lambda * next_advantage;
      next_value = values[k];
      result.advantages[k] = static_cast<float>(next_advantage);
      result.returns[k] = static_cast<float>(next_advantage + next_value);
    }
  }
  return result;
}

}  // namespace weft::rl
