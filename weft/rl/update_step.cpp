#include "weft/rl/update_step.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace weft::rl {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<train::TrainSequence> sequences_of(const std::vector<Group>& groups) {
  std::vector<train::TrainSequence> sequences;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const Sample& sample : groups[g].samples) {
      const auto& prompt = groups[g].prompt.tokens;
      train::TrainSequence s;
      s.tokens = prompt;
      s.tokens.insert(s.tokens.end(), sample.tokens.begin(), sample.tokens.end());
      s.first_target = static_cast<std::int64_t>(prompt.size());
      s.group = static_cast<std::int64_t>(g);
      s.shared = s.first_target - 1;  // the last prompt token gives the first target
      sequences.push_back(std::move(s));
    }
  return sequences;
}

Batch batch_of(const RlConfig& config, const std::vector<Group>& groups) {
  Batch batch;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const Sample& sample : groups[g].samples) {
      const auto length = static_cast<std::int64_t>(sample.tokens.size());
      batch.offsets.push_back(batch.offsets.back() + length);
      batch.group.push_back(static_cast<std::int32_t>(g));
      batch.reward.push_back(
          static_cast<float>(sample.score.reward +
                             overlong_penalty(length, config.max_tokens, config.overlong_tokens)));
      batch.logp_rollout.insert(batch.logp_rollout.end(), sample.logp.begin(), sample.logp.end());
    }
  batch.logp_old = batch.logp_rollout;
  return batch;
}

void measure_mismatch(std::span<const float> rollout, std::span<const float> trained,
                      StepMetrics& metrics) {
  double sum = 0;
  for (std::size_t t = 0; t < trained.size(); ++t) {
    const double d = std::abs(static_cast<double>(rollout[t]) - trained[t]);
    sum += d;
    metrics.mismatch_max = std::max(metrics.mismatch_max, d);
  }
  metrics.mismatch_mean = trained.empty() ? 0 : sum / static_cast<double>(trained.size());
}

bool finite(const LossSums& s) { return std::isfinite(s.objective) && std::isfinite(s.log_ratio); }

void describe(const LossSums& sums, double parts, double entropy, StepMetrics& m) {
  const double tokens = std::max(1.0, sums.tokens);
  m.objective = sums.objective / parts;
  m.policy_objective = sums.policy / parts;
  m.value_loss = sums.value / parts;
  m.approx_kl = sums.approx_kl / tokens;
  m.clip_low = sums.clipped_low / tokens;
  m.clip_high = sums.clipped_high / tokens;
  m.dual_clip = sums.dual_clipped / tokens;
  m.ratio_max = sums.ratio_max;
  m.entropy = entropy / tokens;
}

// The forward and backward pass of one update; what it saw goes into `update`.
struct UpdatePass {
  const RlConfig& config;
  const LossConfig loss;
  const Batch& batch;
  const Signal& signal;
  std::span<const train::TrainSequence> sequences;  // of the whole batch

  Status run(train::PolicyModel& policy, const train::OutputOptions& outputs,
             Update& update) const {
    const LossCounts counts = counts_of(batch, signal, update.begin, update.end);
    const auto objective = [&](const train::TokenOutputs& out, train::TokenGradients& gradients) {
      const std::size_t begin = update.begin + out.first_sequence;
      const std::size_t end = begin + out.offsets.size() - 1;
      LossGradient g;
      update.sums.add(run_objective(loss, counts, batch, signal, begin, end, out.logprob,
                                    loss.entropy_coefficient > 0
                                        ? std::span<const float>(out.entropy)
                                        : std::span<const float>(),
                                    out.value, g));
      const auto append = [](std::vector<float>& to, const std::vector<float>& from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      append(update.logp, out.logprob);
      append(update.entropy, out.entropy);
      append(update.value, out.value);
      append(update.gradient.logp, g.logp);
      append(update.gradient.entropy, g.entropy);
      append(update.gradient.value, g.value);
      // The trainer minimises: dLoss = -dJ.
      const auto negate = [](const std::vector<float>& from, std::vector<float>& to) {
        for (std::size_t t = 0; t < from.size(); ++t) to[t] = -from[t];
      };
      negate(g.logp, gradients.logprob);
      negate(g.entropy, gradients.entropy);
      negate(g.value, gradients.value);
    };
    auto done = policy.accumulate(sequences.subspan(update.begin, update.end - update.begin),
                                  outputs, objective);
    if (!done) return std::unexpected(done.error());
    return {};
  }
};

}  // namespace

Status update_policy(const RlConfig& config, const UpdateInput& input,
                     const std::vector<Group>& groups, train::PolicyModel& policy, ThreadPool& pool,
                     StepMetrics& metrics, Dump& dump) {
  const auto begin = Clock::now();
  dump.step = input.step;
  dump.config = config;
  dump.kl_coefficient = input.kl_coefficient;
  dump.batch = batch_of(config, groups);
  Batch& batch = dump.batch;
  const std::vector<train::TrainSequence> sequences = sequences_of(groups);
  train::OutputOptions outputs{.temperature = static_cast<float>(config.temperature),
                               .entropy = true,
                               .values = uses_critic(config)};

  const bool forward_first = !config.bypass || uses_critic(config);
  if (forward_first) {
    WEFT_ASSIGN(auto old, policy.evaluate(sequences, outputs));
    measure_mismatch(batch.logp_rollout, old.logprob, metrics);
    if (!config.bypass) batch.logp_old = std::move(old.logprob);
    if (uses_critic(config)) batch.value_old = std::move(old.value);
  }
  if (input.reference) {
    WEFT_ASSIGN(auto reference,
                train::score(input.reference, sequences, {.temperature = outputs.temperature},
                             config.micro_batch_tokens, pool));
    batch.logp_reference = std::move(reference.logprob);
  }
  const Signal signal = make_signal(config, input.kl_coefficient, batch);
  dump.advantage = signal.advantage;
  dump.returns = signal.returns;
  if (!signal.advantage.empty()) {
    const auto [low, high] = std::minmax_element(signal.advantage.begin(), signal.advantage.end());
    metrics.advantage_min = *low;
    metrics.advantage_max = *high;
  }
  metrics.kl_reference = signal.kl_reference;
  metrics.kl_coefficient = input.kl_coefficient;
  metrics.effective_sample_size = signal.correction.effective_sample_size;
  metrics.lr = input.learning_rate;
  metrics.logp_s = seconds_since(begin);

  const auto update_begin = Clock::now();
  LossConfig loss = loss_config(config);
  if (loss.kl_coefficient > 0) loss.kl_coefficient = input.kl_coefficient;
  const UpdatePass pass{
      .config = config, .loss = loss, .batch = batch, .signal = signal, .sequences = sequences};
  const std::size_t parts =
      std::min<std::size_t>(static_cast<std::size_t>(config.mini_batches), groups.size());
  const std::size_t size = groups.front().samples.size();
  LossSums sums;
  double entropy = 0;
  for (std::int64_t epoch = 0; epoch < config.epochs && !metrics.skipped; ++epoch)
    for (std::size_t part = 0; part < parts && !metrics.skipped; ++part) {
      Update& update = dump.updates.emplace_back();
      update.begin = part * groups.size() / parts * size;
      update.end = (part + 1) * groups.size() / parts * size;
      WEFT_TRY(pass.run(policy, outputs, update));
      if (dump.updates.size() == 1 && !forward_first) {
        const std::span<const float> rollout(batch.logp_rollout);
        measure_mismatch(rollout.subspan(0, update.logp.size()), update.logp, metrics);
      }
      sums.add(update.sums);
      for (float h : update.entropy) entropy += h;
      if (!finite(update.sums)) metrics.skip_reason = "the objective is not a finite number";
      if (update.sums.ratio_max > config.max_ratio)
        metrics.skip_reason = fmt::format("a probability ratio of {:.3g} is above max_ratio {:.3g}",
                                          update.sums.ratio_max, config.max_ratio);
      if (!metrics.skip_reason.empty()) {
        policy.zero_gradients();
        metrics.skipped = true;
        break;
      }
      const train::StepResult stepped = policy.step(input.learning_rate, config.max_grad_norm);
      metrics.grad_norm = std::max(metrics.grad_norm, stepped.grad_norm);
      if (stepped.skipped) {
        metrics.skipped = true;
        metrics.skip_reason = "a gradient is not a finite number";
        metrics.grad_norm = stepped.grad_norm;
      }
    }
  describe(sums, static_cast<double>(dump.updates.size()), entropy, metrics);
  metrics.update_s = seconds_since(update_begin);
  return {};
}

Result<double> supervised_update(const std::vector<SupervisedExample>& examples,
                                 double learning_rate, double max_grad_norm,
                                 train::PolicyModel& policy) {
  std::vector<train::TrainSequence> sequences;
  double tokens = 0, loss = 0;
  for (const SupervisedExample& example : examples) {
    train::TrainSequence s;
    s.tokens = example.prompt;
    s.tokens.insert(s.tokens.end(), example.reply.begin(), example.reply.end());
    s.first_target = static_cast<std::int64_t>(example.prompt.size());
    tokens += static_cast<double>(example.reply.size());
    sequences.push_back(std::move(s));
  }
  auto done = policy.accumulate(
      sequences, {}, [&](const train::TokenOutputs& out, train::TokenGradients& gradients) {
        for (std::size_t t = 0; t < out.logprob.size(); ++t) {
          loss -= out.logprob[t] / tokens;
          gradients.logprob[t] = static_cast<float>(-1.0 / tokens);
        }
      });
  if (!done) return std::unexpected(done.error());
  policy.step(learning_rate, max_grad_norm);
  return loss;
}

}  // namespace weft::rl
