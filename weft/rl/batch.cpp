#include "weft/rl/batch.h"

#include <algorithm>

namespace weft::rl {
namespace {

std::span<const float> slice(const std::vector<float>& v, std::size_t begin, std::size_t end) {
  return v.empty() ? std::span<const float>()
                   : std::span<const float>(v).subspan(begin, end - begin);
}

// The KL to the reference as a cost a token, beta * k.
std::vector<double> kl_costs(const RlConfig& config, double beta, const Batch& batch) {
  std::vector<double> cost(batch.tokens(), 0.0);
  if (config.kl_in != "reward" || batch.logp_reference.empty()) return cost;
  const KlEstimator estimator = loss_config(config).kl_estimator;
  for (std::size_t t = 0; t < cost.size(); ++t)
    cost[t] = beta * kl_term(estimator, batch.logp_old[t], batch.logp_reference[t]).value;
  return cost;
}

void token_advantages(const RlConfig& config, const Batch& batch, const std::vector<double>& cost,
                      Signal& signal) {
  std::vector<float> reward(batch.tokens());
  for (std::size_t i = 0; i < batch.sequences(); ++i)
    for (std::int64_t t = batch.offsets[i]; t < batch.offsets[i + 1]; ++t) {
      const auto k = static_cast<std::size_t>(t);
      const bool last = t + 1 == batch.offsets[i + 1];
      reward[k] = static_cast<float>((last ? batch.reward[i] : 0.0) - cost[k]);
    }
  Gae gae =
      generalized_advantages(batch.offsets, reward, batch.value_old, config.gamma, config.lambda);
  whiten(gae.advantages, moments(gae.advantages));
  signal.advantage = std::move(gae.advantages);
  signal.returns = std::move(gae.returns);
}

}  // namespace

Signal make_signal(const RlConfig& config, double kl_coefficient, const Batch& batch) {
  Signal signal;
  signal.correction =
      correct(correction_config(config), batch.offsets, batch.logp_old, batch.logp_rollout);
  for (std::size_t t = 0; t < batch.logp_reference.size(); ++t)
    signal.kl_reference +=
        kl_term(KlEstimator::kK3, batch.logp_old[t], batch.logp_reference[t]).value /
        static_cast<double>(batch.tokens());
  const std::vector<double> cost = kl_costs(config, kl_coefficient, batch);
  const AdvantageKind kind = advantage_kind(config);
  if (kind == AdvantageKind::kGae) {
    token_advantages(config, batch, cost, signal);
    return signal;
  }
  std::vector<float> reward(batch.sequences());
  for (std::size_t i = 0; i < reward.size(); ++i) {
    double r = batch.reward[i];
    for (std::int64_t t = batch.offsets[i]; t < batch.offsets[i + 1]; ++t)
      r -= cost[static_cast<std::size_t>(t)];
    reward[i] = static_cast<float>(r);
  }
  const std::vector<float> a = group_advantages(kind, reward, batch.group);
  for (std::size_t i = 0; i < a.size(); ++i)
    signal.advantage.insert(signal.advantage.end(),
                            static_cast<std::size_t>(batch.offsets[i + 1] - batch.offsets[i]),
                            a[i]);
  if (kind == AdvantageKind::kReinforceBaseline)
    whiten(signal.advantage, moments(signal.advantage));
  return signal;
}

LossCounts counts_of(const Batch& batch, const Signal& signal, std::size_t begin, std::size_t end) {
  const std::span<const std::int64_t> offsets(batch.offsets);
  return count_tokens(offsets.subspan(begin, end - begin + 1), signal.correction.keep);
}

LossSums run_objective(const LossConfig& config, const LossCounts& counts, const Batch& batch,
                       const Signal& signal, std::size_t begin, std::size_t end,
                       std::span<const float> logp, std::span<const float> entropy,
                       std::span<const float> value, LossGradient& gradient) {
  const auto first = static_cast<std::size_t>(batch.offsets[begin]);
  const auto last = static_cast<std::size_t>(batch.offsets[end]);
  std::vector<std::int64_t> offsets;
  for (std::size_t i = begin; i <= end; ++i)
    offsets.push_back(batch.offsets[i] - batch.offsets[begin]);
  const auto& keep = signal.correction.keep;
  const LossTokens tokens{
      .offsets = offsets,
      .logp = logp,
      .logp_old = slice(batch.logp_old, first, last),
      .advantage = slice(signal.advantage, first, last),
      .weight = slice(signal.correction.weight, first, last),
      .keep = keep.empty() ? std::span<const std::uint8_t>()
                           : std::span<const std::uint8_t>(keep).subspan(first, last - first),
      .logp_reference = slice(batch.logp_reference, first, last),
      .entropy = entropy,
      .value = value,
      .value_old = slice(batch.value_old, first, last),
      .returns = slice(signal.returns, first, last)};
  return policy_loss(config, counts, tokens, gradient);
}

double overlong_penalty(std::int64_t length, std::int64_t max_tokens, std::int64_t buffer) {
  if (buffer <= 0) return 0.0;
  const std::int64_t allowed = max_tokens - buffer;
  return -std::clamp(static_cast<double>(length - allowed) / static_cast<double>(buffer), 0.0, 1.0);
}

}  // namespace weft::rl
