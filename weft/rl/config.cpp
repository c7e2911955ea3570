#include "weft/rl/config.h"

#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <type_traits>

#include "weft/rl/task.h"
#include "weft/train/schedule.h"

namespace weft::rl {
namespace {

const auto kBad = ErrorCode::kInvalidArgument;

// Every field with its key and help, once, for the file, the flags and JSON.
template <class Config, class Visit>
void visit_fields(Config& c, Visit visit) {
  visit("task", c.task, "modadd, copy, sort, digits, words, gsm8k:FILE or jsonl:FILE");
  visit("algo", c.algo, "grpo, drgrpo, dapo, rloo, gspo, ppo, cispo, sapo or reinforce");
  visit("model", c.model, "model to train; empty: the small built-in one from random weights");
  visit("compute", c.compute, "f32, bf16 or auto");
  visit("device", c.device, "where the trainer computes: cpu, cuda, cuda:N or auto");
  visit("steps", c.steps, "updates; 0 = the task's default");
  visit("prompts", c.prompts, "prompts a step; 0 = the task's default");
  visit("group", c.group, "replies a prompt");
  visit("max_tokens", c.max_tokens, "longest reply; 0 = the task's default");
  visit("temperature", c.temperature, "of the sampling");
  visit("seed", c.seed, "of everything random");
  visit("lr", c.lr, "AdamW's learning rate; 0 = the task's default");
  visit("schedule", c.schedule, "constant, linear, cosine or wsd");
  visit("warmup_steps", c.warmup_steps, "steps of linear warm-up");
  visit("weight_decay", c.weight_decay, "AdamW's decoupled weight decay");
  visit("max_grad_norm", c.max_grad_norm, "gradient clipping; 0 = off");
  visit("mini_batches", c.mini_batches, "updates a batch and epoch");
  visit("epochs", c.epochs, "passes over a batch");
  visit("micro_batch_tokens", c.micro_batch_tokens, "tokens of one forward pass of the trainer");
  visit("sft_steps", c.sft_steps, "supervised steps before, on right answers (built-in tasks)");
  visit("advantage", c.advantage, "auto, grpo, drgrpo, rloo, gae or reinforce-baseline");
  visit("objective", c.objective, "auto, ppo-clip, gspo, cispo or sapo");
  visit("aggregation", c.aggregation,
        "auto, token-mean, seq-mean-token-mean, seq-mean-token-sum or token-sum-over-constant");
  visit("clip_low", c.clip_low, "the ratio is clipped below at 1 - this; -1 = the algorithm's");
  visit("clip_high", c.clip_high, "and above at 1 + this");
  visit("dual_clip", c.dual_clip, "bound of the loss of bad tokens; 0 = off, -1 = 3");
  visit("entropy", c.entropy, "coefficient of the entropy bonus");
  visit("kl", c.kl, "coefficient of the KL to the first weights; 0 needs no reference");
  visit("kl_in", c.kl_in, "loss or reward");
  visit("kl_estimator", c.kl_estimator, "k1, k2 or k3");
  visit("kl_target", c.kl_target, "above 0: the coefficient adapts to reach this KL");
  visit("kl_horizon", c.kl_horizon, "samples over which it adapts");
  visit("gamma", c.gamma, "discount of GAE");
  visit("lambda", c.lambda, "lambda of GAE");
  visit("value_coefficient", c.value_coefficient, "of the critic's loss (ppo)");
  visit("value_clip", c.value_clip, "how far a value may move in one batch; 0 = off");
  visit("dynamic_sampling", c.dynamic_sampling, "replace groups whose rewards are all equal");
  visit("dynamic_attempts", c.dynamic_attempts, "batches sampled at most for one step");
  visit("overlong_tokens", c.overlong_tokens, "length of the overlong penalty's ramp; 0 = off");
  visit("correction", c.correction, "off-policy weights: none, token or sequence");
  visit("correction_cap", c.correction_cap, "largest off-policy weight");
  visit("correction_normalize", c.correction_normalize, "scale the weights to mean 1");
  visit("rejection", c.rejection, "none, token, sequence-mean, sequence-sum or sequence-max");
  visit("rejection_statistic", c.rejection_statistic, "k1, k2 or k3");
  visit("rejection_low", c.rejection_low, "smallest statistic that is kept");
  visit("rejection_high", c.rejection_high, "largest statistic that is kept");
  visit("decoupled", c.decoupled, "clip around the old policy, weight by old / rollout");
  visit("bypass", c.bypass, "take the sampler's log-probabilities as the old policy's");
  visit("verifier", c.verifier, "command that scores replies (jsonl)");
  visit("verifier_seconds", c.verifier_seconds, "time limit for one score");
  visit("verifier_memory_mib", c.verifier_memory_mib, "memory limit of the verifier");
  visit("eval_every", c.eval_every, "steps between greedy evaluations; 0 = the task's default");
  visit("checkpoint_every", c.checkpoint_every, "steps between checkpoints; 0 = at the end");
  visit("keep_checkpoints", c.keep_checkpoints, "how many are kept; 0 = all");
  visit("dump_steps", c.dump_steps, "batches kept for `weft rl replay`");
  visit("max_ratio", c.max_ratio, "a larger probability ratio skips the step");
  visit("entropy_alarm", c.entropy_alarm, "mean entropy, in nats, under which the alarm goes");
  visit("entropy_alarm_exact", c.entropy_alarm_exact, "exact rate above which it stays quiet");
}

template <class Enum>
Result<Enum> one_of(std::string_view option, std::string_view value,
                    std::span<const std::pair<std::string_view, Enum>> known) {
  std::string names;
  for (const auto& [name, e] : known) {
    if (name == value) return e;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return fail(kBad, "{} is '{}'; it can be {}", option, value, names);
}

using AdvantageName = std::pair<std::string_view, AdvantageKind>;
constexpr std::array<AdvantageName, 5> kAdvantages = {
    {{"grpo", AdvantageKind::kGrpo},
     {"drgrpo", AdvantageKind::kDrGrpo},
     {"rloo", AdvantageKind::kRloo},
     {"gae", AdvantageKind::kGae},
     {"reinforce-baseline", AdvantageKind::kReinforceBaseline}}};
using ObjectiveName = std::pair<std::string_view, Objective>;
constexpr std::array<ObjectiveName, 4> kObjectives = {{{"ppo-clip", Objective::kPpoClip},
                                                       {"gspo", Objective::kGspo},
                                                       {"cispo", Objective::kCispo},
                                                       {"sapo", Objective::kSapo}}};
using AggregationName = std::pair<std::string_view, Aggregation>;
constexpr std::array<AggregationName, 4> kAggregations = {
    {{"token-mean", Aggregation::kTokenMean},
     {"seq-mean-token-mean", Aggregation::kSequenceMeanTokenMean},
     {"seq-mean-token-sum", Aggregation::kSequenceMeanTokenSum},
     {"token-sum-over-constant", Aggregation::kTokenSumOverConstant}}};
using EstimatorName = std::pair<std::string_view, KlEstimator>;
constexpr std::array<EstimatorName, 3> kEstimators = {
    {{"k1", KlEstimator::kK1}, {"k2", KlEstimator::kK2}, {"k3", KlEstimator::kK3}}};
using WeightName = std::pair<std::string_view, CorrectionWeight>;
constexpr std::array<WeightName, 3> kWeights = {{{"none", CorrectionWeight::kNone},
                                                 {"token", CorrectionWeight::kToken},
                                                 {"sequence", CorrectionWeight::kSequence}}};
using RejectionName = std::pair<std::string_view, CorrectionRejection>;
constexpr std::array<RejectionName, 5> kRejections = {
    {{"none", CorrectionRejection::kNone},
     {"token", CorrectionRejection::kToken},
     {"sequence-mean", CorrectionRejection::kSequenceMean},
     {"sequence-sum", CorrectionRejection::kSequenceSum},
     {"sequence-max", CorrectionRejection::kSequenceMax}}};

// What the name of an algorithm stands for: rl-loop.md, "Policy losses".
struct Algorithm {
  std::string_view name, advantage, objective, aggregation;
  double clip_low, clip_high;
};
constexpr std::array<Algorithm, 9> kAlgorithms = {{
    {"grpo", "grpo", "ppo-clip", "seq-mean-token-mean", 0.2, 0.2},
    {"drgrpo", "drgrpo", "ppo-clip", "token-sum-over-constant", 0.2, 0.2},
    {"dapo", "grpo", "ppo-clip", "token-mean", 0.2, 0.28},
    {"rloo", "rloo", "ppo-clip", "token-mean", 0.2, 0.2},
    {"gspo", "grpo", "gspo", "seq-mean-token-mean", 3e-4, 4e-4},
    {"ppo", "gae", "ppo-clip", "token-mean", 0.2, 0.2},
    {"cispo", "grpo", "cispo", "token-mean", 0.2, 0.28},
    {"sapo", "grpo", "sapo", "seq-mean-token-mean", 0.2, 0.2},
    {"reinforce", "reinforce-baseline", "ppo-clip", "token-mean", 0.2, 0.2},
}};

Status apply_algorithm(RlConfig& c) {
  for (const Algorithm& a : kAlgorithms) {
    if (a.name != c.algo) continue;
    if (c.advantage == "auto") c.advantage = a.advantage;
    if (c.objective == "auto") c.objective = a.objective;
    if (c.aggregation == "auto") c.aggregation = a.aggregation;
    if (c.clip_low == -1) c.clip_low = a.clip_low;
    if (c.clip_high == -1) c.clip_high = a.clip_high;
    if (c.dual_clip == -1) c.dual_clip = 3.0;
    if (c.algo == "dapo") c.dynamic_sampling = true;
    return {};
  }
  std::string names;
  for (const Algorithm& a : kAlgorithms) names += (names.empty() ? "" : ", ") + std::string(a.name);
  return fail(kBad, "algo is '{}'; it can be {}", c.algo, names);
}

struct TaskDefaults {
  std::int64_t steps, prompts, max_tokens, eval_every;
  double lr;
};
TaskDefaults defaults_of(const std::string& task) {
  if (task == "modadd") return {1500, 32, 2, 50, 5e-4};
  if (task == "digits") return {1500, 32, 4, 50, 5e-4};
  if (task == "copy" || task == "sort") return {500, 32, 6, 50, 5e-4};
  if (task == "words") return {80, 16, 12, 10, 2e-5};
  return {100, 8, 256, 20, 1e-6};
}

Status check_names(const RlConfig& c) {
  WEFT_TRY(one_of<AdvantageKind>("advantage", c.advantage, kAdvantages));
  WEFT_TRY(one_of<Objective>("objective", c.objective, kObjectives));
  WEFT_TRY(one_of<Aggregation>("aggregation", c.aggregation, kAggregations));
  WEFT_TRY(one_of<KlEstimator>("kl_estimator", c.kl_estimator, kEstimators));
  WEFT_TRY(one_of<KlEstimator>("rejection_statistic", c.rejection_statistic, kEstimators));
  WEFT_TRY(one_of<CorrectionWeight>("correction", c.correction, kWeights));
  WEFT_TRY(one_of<CorrectionRejection>("rejection", c.rejection, kRejections));
  if (c.kl_in != "loss" && c.kl_in != "reward")
    return fail(kBad, "kl_in is '{}'; it can be loss or reward", c.kl_in);
  WEFT_TRY(train::schedule_from_string(c.schedule));
  if (c.compute != "f32" && c.compute != "bf16")
    return fail(kBad, "compute is '{}'; it can be auto, f32 or bf16", c.compute);
  return {};
}

Status check_task(const RlConfig& c) {
  const std::string kind = c.task.substr(0, c.task.find(':'));
  const bool with_file = kind == "gsm8k" || kind == "jsonl";
  if (with_file && c.task.size() <= kind.size() + 1)
    return fail(kBad, "task {} needs its file: {}:FILE", kind, kind);
  if (!with_file && c.task != "words" && !is_char_task(c.task))
    return fail(kBad,
                "task is '{}'; it can be modadd, copy, sort, digits, words, gsm8k:FILE or "
                "jsonl:FILE",
                c.task);
  if (is_char_task(c.task) && !c.model.empty())
    return fail(kBad,
                "task {} has a vocabulary of 16 characters and trains the built-in model; "
                "leave --model out, or take task words, gsm8k or jsonl",
                c.task);
  if (!is_char_task(c.task) && c.model.empty())
    return fail(kBad, "task {} needs --model, for instance smollm2-135m-instruct", kind);
  if (!c.verifier.empty() && kind != "jsonl")
    return fail(kBad, "a verifier scores task jsonl:FILE only; task {} has its own reward", kind);
  if (c.sft_steps > 0 && !is_char_task(c.task))
    return fail(kBad,
                "sft_steps needs right answers to imitate, which only the built-in tasks have");
  return {};
}

Status check_numbers(const RlConfig& c) {
  if (c.group < 1) return fail(kBad, "group is {}: at least one reply a prompt", c.group);
  if (c.group == 1 && c.advantage != "gae")
    return fail(kBad,
                "group is 1 with {}: its baseline is the mean of the group, so one reply "
                "always compares with itself; take at least 2, or algo ppo",
                c.algo);
  if (!(c.temperature > 0))
    return fail(kBad,
                "temperature is {}: greedy decoding is not a policy to learn from; take a "
                "value above 0 (1 is usual)",
                c.temperature);
  if (c.seed < 0) return fail(kBad, "seed is {}: it must not be negative", c.seed);
  if (c.steps < 1 || c.prompts < 1 || c.max_tokens < 1)
    return fail(kBad, "steps, prompts and max_tokens must be at least 1");
  if (c.group * c.prompts > 65536)
    return fail(kBad, "{} prompts x {} replies is more than 65536 samples a step", c.prompts,
                c.group);
  if (!(c.lr > 0 && c.lr < 1)) return fail(kBad, "lr is {}: it must lie in (0, 1)", c.lr);
  if (c.mini_batches < 1 || c.mini_batches > c.prompts)
    return fail(kBad,
                "mini_batches is {}: from 1 to the number of prompts ({}), since groups stay "
                "whole",
                c.mini_batches, c.prompts);
  if (c.epochs < 1) return fail(kBad, "epochs is {}: at least 1", c.epochs);
  if (!(c.gamma > 0 && c.gamma <= 1 && c.lambda >= 0 && c.lambda <= 1))
    return fail(kBad, "gamma must lie in (0, 1] and lambda in [0, 1] (they are {} and {})", c.gamma,
                c.lambda);
  if (!(c.kl_target >= 0 && c.kl_horizon > 0))
    return fail(kBad, "kl_target must not be negative and kl_horizon must be above 0");
  if (c.kl_target > 0 && !(c.kl > 0))
    return fail(kBad,
                "kl_target without kl: the coefficient starts from kl, so that must be above 0");
  if (!(c.max_ratio > 1)) return fail(kBad, "max_ratio is {}: it must be above 1", c.max_ratio);
  if (c.overlong_tokens < 0 || c.overlong_tokens > c.max_tokens)
    return fail(kBad, "overlong_tokens is {}: from 0 to max_tokens ({})", c.overlong_tokens,
                c.max_tokens);
  if (c.dynamic_attempts < 1)
    return fail(kBad, "dynamic_attempts is {}: at least 1", c.dynamic_attempts);
  if (c.dynamic_sampling && c.advantage == "gae")
    return fail(kBad,
                "dynamic_sampling drops groups of equal rewards, whose advantage is 0 with a "
                "group baseline; with a critic it is not");
  if (c.decoupled && c.correction == "none")
    return fail(kBad,
                "decoupled weights by pi_old / pi_rollout: set correction to token or sequence");
  return {};
}

template <class Enum, std::size_t N>
Enum value_of(const std::array<std::pair<std::string_view, Enum>, N>& known,
              std::string_view name) {
  for (const auto& [n, e] : known)
    if (n == name) return e;
  WEFT_CHECK(false, "'{}' in a configuration that was not resolved", name);
  return {};
}

}  // namespace

std::vector<ConfigKey> config_keys() {
  std::vector<ConfigKey> keys;
  RlConfig config;
  visit_fields(config, [&](const char* key, const auto& field, const char* help) {
    using T = std::remove_cvref_t<decltype(field)>;
    auto kind = ConfigKey::Kind::kNumber;
    if constexpr (std::is_same_v<T, bool>) kind = ConfigKey::Kind::kFlag;
    if constexpr (std::is_same_v<T, std::string>) kind = ConfigKey::Kind::kText;
    keys.push_back({key, help, kind});
  });
  return keys;
}

void declare(RlConfig& config, ConfigSchema& schema) {
  visit_fields(config, [&](const char* key, auto& field, const char* help) {
    schema.field(key, &field).help(help);
  });
}

Status resolve(RlConfig& c) {
  WEFT_TRY(apply_algorithm(c));
  const TaskDefaults d = defaults_of(c.task);
  if (c.steps == 0) c.steps = d.steps;
  if (c.prompts == 0) c.prompts = d.prompts;
  if (c.max_tokens == 0) c.max_tokens = d.max_tokens;
  if (c.lr == 0) c.lr = d.lr;
  if (c.eval_every == 0) c.eval_every = d.eval_every;
  if (c.compute == "auto") c.compute = c.model.empty() ? "f32" : "bf16";
  WEFT_TRY(check_names(c));
  WEFT_TRY(check_task(c));
  WEFT_TRY(check_numbers(c));
  WEFT_TRY(validate(loss_config(c)));
  return validate(correction_config(c));
}

AdvantageKind advantage_kind(const RlConfig& c) { return value_of(kAdvantages, c.advantage); }

LossConfig loss_config(const RlConfig& c) {
  return {.objective = value_of(kObjectives, c.objective),
          .aggregation = value_of(kAggregations, c.aggregation),
          .clip_low = c.clip_low,
          .clip_high = c.clip_high,
          .dual_clip = c.dual_clip,
          .token_sum_constant = static_cast<double>(c.max_tokens),
          .kl_coefficient = c.kl_in == "loss" ? c.kl : 0.0,
          .kl_estimator = value_of(kEstimators, c.kl_estimator),
          .entropy_coefficient = c.entropy,
          .value_coefficient = c.value_coefficient,
          .value_clip = c.value_clip,
          .decoupled = c.decoupled};
}

CorrectionConfig correction_config(const RlConfig& c) {
  return {.weight = value_of(kWeights, c.correction),
          .cap = c.correction_cap,
          .normalize = c.correction_normalize,
          .rejection = value_of(kRejections, c.rejection),
          .statistic = value_of(kEstimators, c.rejection_statistic),
          .reject_low = c.rejection_low,
          .reject_high = c.rejection_high};
}

bool uses_critic(const RlConfig& c) { return c.advantage == "gae"; }
bool uses_reference(const RlConfig& c) { return c.kl > 0; }

Json to_json(const RlConfig& config) {
  Json json = Json::object();
  visit_fields(config, [&](const char* key, const auto& field, const char*) { json[key] = field; });
  return json;
}

Result<RlConfig> rl_config_from_json(const Json& json) {
  RlConfig config;
  Status status;
  const auto read = [&](const char* key, auto& field) {
    if (!status) return;
    auto value = json_field<std::remove_reference_t<decltype(field)>>(json, key);
    if (value)
      field = *value;
    else
      status = std::unexpected(value.error());
  };
  visit_fields(config, [&](const char* key, auto& field, const char*) { read(key, field); });
  if (!status) return std::unexpected(status.error());
  return config;
}

}  // namespace weft::rl
