#include "weft/rl/loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <memory>
#include <set>

#include "weft/model/load.h"
#include "weft/rl/file_tasks.h"
#include "weft/rl/small_model.h"
#include "weft/rl/update_step.h"
#include "weft/state/checkpoint.h"
#include "weft/train/schedule.h"

namespace weft::rl {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

constexpr std::size_t kShownReplies = 24;  // of an evaluation, kept for people
constexpr std::uint64_t kSupervisedCursor = std::uint64_t{1}
                                            << 40;  // apart from the loop's prompts

struct Loop {
  Loop(const RlConfig& config_, const LoopOptions& options_, const LoopEvents& events_,
       ThreadPool& pool_)
      : config(config_), options(options_), events(events_), pool(pool_) {}

  const RlConfig& config;
  const LoopOptions& options;
  const LoopEvents& events;
  ThreadPool& pool;

  model::Model model;
  std::unique_ptr<Task> task;
  std::unique_ptr<train::PolicyModel> policy;
  std::unique_ptr<serve::Engine> engine;
  std::shared_ptr<const nn::TransformerWeights> reference;
  std::unique_ptr<RunDirectory> directory;

  // What a checkpoint holds beside the weights.
  std::int64_t step = 0;     // done
  std::uint64_t cursor = 0;  // next prompt of the task
  double kl_coefficient = 0;
  double sampled = 0, sampled_exact = 0;  // replies of this step, filtered ones included
  std::deque<double> entropies, exacts;   // of the last kAlarmWindow steps
  std::int64_t learned_steps = 0;         // in a row in which all that was sampled was right
  LoopResult result;

  void say(const std::string& line) const {
    if (events.on_message) events.on_message(line);
  }

  Status set_up();
  Status load();
  Status resume();
  Status warm_start();
  Status run();
  Status run_step();
  Result<std::vector<Group>> sample(StepMetrics& metrics);
  void watch_entropy(StepMetrics& metrics);
  Status evaluate();
  Status save(bool final);
  state::CheckpointContent content() const;
};

Status Loop::load() {
  if (config.model.empty()) {
    model.name = "small transformer";
    model.tokenizer = task_tokenizer();
    model.config = small_model_config(*model.tokenizer);
    model.weights = small_model_weights(model.config, static_cast<std::uint64_t>(config.seed));
    return {};
  }
  WEFT_ASSIGN(model, model::load_model(config.model));
  if (!model.tokenizer)
    return fail(ErrorCode::kInvalidArgument, "{} has no tokenizer, which a task in words needs",
                config.model);
  return {};
}

Status Loop::set_up() {
  WEFT_TRY(load());
  const FileTaskOptions task_options{
      .seed = static_cast<std::uint64_t>(config.seed),
      .format = {.tokenizer = model.tokenizer, .chat_template = model.chat_template},
      .max_prompt_tokens = model.config.max_position - config.max_tokens};
  const VerifierOptions verifier{.command = config.verifier,
                                 .reply_seconds = config.verifier_seconds,
                                 .memory_mib = config.verifier_memory_mib};
  WEFT_ASSIGN(task, make_task(config.task, task_options, verifier));
  const InputProblems& problems = task->input_problems();
  for (const std::string& line : problems.first) say("warning: passed over " + line);
  if (problems.count > static_cast<std::int64_t>(problems.first.size()))
    say(fmt::format("warning: {} lines passed over in all", problems.count));

  train::PolicyOptions policy_options{
      .compute = config.compute == "f32" ? nn::Compute::kF32 : nn::Compute::kBF16,
      .value_head = uses_critic(config),
      .optimizer = {.weight_decay = config.weight_decay},
      .micro_batch_tokens = config.micro_batch_tokens,
      .device = config.device};
  WEFT_ASSIGN(policy,
              train::PolicyModel::create(model.config, model.weights, policy_options, pool));
  if (uses_reference(config)) reference = policy->current_weights();
  kl_coefficient = config.kl;

  const std::int64_t samples = config.prompts * config.group;
  const std::int64_t evaluated = static_cast<std::int64_t>(task->evaluation().size());
  const std::int64_t context = task->longest_prompt() + config.max_tokens + 1;
  serve::EngineOptions engine_options{
      .max_batch_tokens = 2048,
      .max_sequences = std::min<std::int64_t>(std::max(samples, evaluated), 512),
      .max_queue = std::max(samples, evaluated) + 1,
      .max_context = std::min(context, model.config.max_position)};
  const std::int64_t pages_each = (context + nn::kAttentionBlock - 1) / nn::kAttentionBlock;
  engine_options.kv_pages = engine_options.max_sequences * pages_each;
  engine = std::make_unique<serve::Engine>(policy->current_weights(), model.tokenizer,
                                           engine_options, pool);
  if (events.on_start) events.on_start(model.name, policy->parameters(), config);
  return {};
}

Status Loop::resume() {
  std::vector<std::string> skipped;
  auto checkpoint = state::read_newest_checkpoint(options.run / "checkpoints", skipped);
  for (const std::string& line : skipped) say("warning: " + line);
  if (!checkpoint && checkpoint.error().code != ErrorCode::kNotFound)
    return std::unexpected(checkpoint.error());
  if (checkpoint) {
    const Json& t = checkpoint->trainer;
    WEFT_ASSIGN(step, json_field<std::int64_t>(t, "step"));
    WEFT_ASSIGN(const std::int64_t stored_cursor, json_field<std::int64_t>(t, "cursor"));
    WEFT_ASSIGN(const std::int64_t updates, json_field<std::int64_t>(t, "updates"));
    WEFT_ASSIGN(kl_coefficient, json_field<double>(t, "kl_coefficient"));
    WEFT_ASSIGN(result.alarm_step, json_field<std::int64_t>(t, "alarm_step"));
    WEFT_ASSIGN(learned_steps, json_field<std::int64_t>(t, "learned_steps"));
    cursor = static_cast<std::uint64_t>(stored_cursor);
    for (const char* name : {"entropies", "exacts"}) {
      const auto window = t.find(name);
      if (window == t.end() || !window->is_array())
        return fail(ErrorCode::kCorrupt, "{}: no list \"{}\"", checkpoint->path.string(), name);
      auto& to = std::string_view(name) == "entropies" ? entropies : exacts;
      for (const Json& x : *window) to.push_back(x.is_number() ? x.get<double>() : 0.0);
    }
    WEFT_TRY(policy->restore(checkpoint->training_state, updates));
    say(fmt::format("going on after step {} of {}", step, checkpoint->path.string()));
  } else {
    say("no checkpoint yet: starting from step 0");
  }
  WEFT_ASSIGN(RunDirectory reopened, RunDirectory::reopen(options.run, checkpoint ? step : -1));
  directory = std::make_unique<RunDirectory>(std::move(reopened));
  engine->set_weights(policy->current_weights());
  return {};
}

Status Loop::warm_start() {
  for (std::int64_t i = 0; i < config.sft_steps; ++i) {
    std::vector<SupervisedExample> examples;
    for (std::int64_t p = 0; p < config.prompts * config.group; ++p) {
      const Prompt prompt = task->prompt(
          kSupervisedCursor + static_cast<std::uint64_t>(i * config.prompts * config.group + p));
      SupervisedExample e{
          .prompt = prompt.tokens,
          .reply = model.tokenizer->encode(prompt.reference, {.add_special = false})};
      e.reply.push_back(model.tokenizer->eos().front());
      examples.push_back(std::move(e));
    }
    WEFT_ASSIGN(const double loss,
                supervised_update(examples, config.lr, config.max_grad_norm, *policy));
    if (i + 1 == config.sft_steps)
      say(fmt::format("supervised warm start: {} steps, loss {:.3f}", config.sft_steps, loss));
  }
  engine->set_weights(policy->current_weights());
  return {};
}

Result<std::vector<Group>> Loop::sample(StepMetrics& m) {
  const RolloutOptions rollout{.group = config.group,
                               .max_tokens = config.max_tokens,
                               .temperature = static_cast<float>(config.temperature),
                               .seed = static_cast<std::uint64_t>(config.seed)};
  std::vector<Group> kept;
  const std::int64_t attempts = config.dynamic_sampling ? config.dynamic_attempts : 1;
  std::int64_t filtered = 0;
  sampled = sampled_exact = 0;
  const auto wanted = static_cast<std::size_t>(config.prompts);
  for (std::int64_t attempt = 0; attempt < attempts && kept.size() < wanted; ++attempt) {
    std::vector<Prompt> prompts;
    for (std::int64_t p = 0; p < config.prompts; ++p) prompts.push_back(task->prompt(cursor++));
    auto begin = Clock::now();
    WEFT_ASSIGN(std::vector<Group> groups, roll_out(*engine, std::move(prompts),
                                                    static_cast<std::uint64_t>(step + 1), rollout));
    m.generate_s += seconds_since(begin);
    begin = Clock::now();
    score_groups(*task, groups);
    m.reward_s += seconds_since(begin);
    m.sampled_groups += static_cast<std::int64_t>(groups.size());
    for (const Group& group : groups)
      for (const Sample& s : group.samples) {
        m.tokens += static_cast<std::int64_t>(s.tokens.size());
        sampled += 1;
        sampled_exact += s.score.exact;
      }
    m.reward_errors += drop_failed(groups, m.dropped_groups);
    for (Group& group : groups) {
      if (config.dynamic_sampling && all_equal(group)) {
        ++filtered;
      } else if (kept.size() < wanted) {
        kept.push_back(std::move(group));
      }
    }
  }
  m.filtered_groups = m.sampled_groups > 0
                          ? static_cast<double>(filtered) / static_cast<double>(m.sampled_groups)
                          : 0;
  m.tokens_per_s = m.generate_s > 0 ? static_cast<double>(m.tokens) / m.generate_s : 0;
  return kept;
}

// Rewards, lengths and rates over the samples that are trained on.
void describe_samples(const std::vector<Group>& groups, StepMetrics& m) {
  double sum = 0, squares = 0, exact = 0, cut = 0, length = 0, passed = 0;
  m.groups = static_cast<std::int64_t>(groups.size());
  m.reward_min = INFINITY;
  m.reward_max = -INFINITY;
  for (const Group& group : groups) {
    bool any = false;
    for (const Sample& s : group.samples) {
      ++m.samples;
      sum += s.score.reward;
      squares += s.score.reward * s.score.reward;
      m.reward_min = std::min(m.reward_min, s.score.reward);
      m.reward_max = std::max(m.reward_max, s.score.reward);
      exact += s.score.exact;
      any = any || s.score.exact;
      cut += !s.ended;
      const auto n = static_cast<double>(s.tokens.size());
      length += n;
      m.length_max = std::max(m.length_max, n);
    }
    passed += any;
  }
  const auto n = static_cast<double>(m.samples);
  if (m.samples == 0) {
    m.reward_min = m.reward_max = 0;
    return;
  }
  m.reward_mean = sum / n;
  m.reward_deviation = std::sqrt(std::max(0.0, squares / n - m.reward_mean * m.reward_mean));
  m.exact = exact / n;
  m.cut = cut / n;
  m.length_mean = length / n;
  m.pass_at_group = passed / static_cast<double>(m.groups);
}

void Loop::watch_entropy(StepMetrics& m) {
  if (m.groups == 0) return;  // nothing was trained on: no entropy was measured
  // Of all replies: what dynamic sampling keeps is never a group that is entirely right.
  entropies.push_back(m.entropy);
  exacts.push_back(sampled > 0 ? sampled_exact / sampled : 0.0);
  if (static_cast<std::int64_t>(entropies.size()) > kAlarmWindow) {
    entropies.pop_front();
    exacts.pop_front();
  }
  const auto mean = [](const std::deque<double>& v) {
    double sum = 0;
    for (double x : v) sum += x;
    return sum / static_cast<double>(v.size());
  };
  m.entropy_alarm =
      entropy_collapsed(mean(entropies), mean(exacts), static_cast<std::int64_t>(entropies.size()),
                        config.entropy_alarm, config.entropy_alarm_exact);
  if (m.entropy_alarm && result.alarm_step == 0) {
    result.alarm_step = m.step;
    say(fmt::format(
        "warning: entropy collapsed to {:.3f} nats at step {} while only {:.0f} % of the "
        "replies are right; an entropy bonus (--entropy 0.01 or 0.02) keeps it exploring",
        mean(entropies), m.step, 100 * mean(exacts)));
  }
}

Status Loop::run_step() {
  const auto begin = Clock::now();
  StepMetrics m;
  m.step = step + 1;
  m.version = step;
  WEFT_ASSIGN(const std::vector<Group> groups, sample(m));
  describe_samples(groups, m);
  Dump dump;
  if (groups.empty()) {
    m.skipped = true;
    m.skip_reason = m.dropped_groups > 0 ? "no group has a reward for every sample"
                                         : "dynamic sampling found no group with unequal rewards";
  } else {
    const train::Schedule schedule{.kind = *train::schedule_from_string(config.schedule),
                                   .peak = config.lr,
                                   .steps = config.steps,
                                   .warmup_steps = config.warmup_steps,
                                   .decay_steps = std::max<std::int64_t>(1, config.steps / 10)};
    const UpdateInput input{.step = m.step,
                            .learning_rate = train::learning_rate(schedule, step),
                            .kl_coefficient = kl_coefficient,
                            .reference = reference};
    WEFT_TRY(update_policy(config, input, groups, *policy, pool, m, dump));
  }
  const auto sync = Clock::now();
  engine->set_weights(policy->current_weights());
  m.sync_s = seconds_since(sync);
  if (config.kl_target > 0 && !m.skipped)
    kl_coefficient = adapt_kl_coefficient(kl_coefficient, m.kl_reference, config.kl_target,
                                          static_cast<double>(m.samples), config.kl_horizon);
  watch_entropy(m);
  learned_steps = groups.empty() && sampled > 0 && sampled_exact == sampled ? learned_steps + 1 : 0;
  ++step;
  m.total_s = seconds_since(begin);
  result.mismatch_max = std::max(result.mismatch_max, m.mismatch_max);
  result.skipped += m.skipped;
  result.reward_errors += m.reward_errors;
  if (m.mismatch_max > 0)
    say(fmt::format(
        "warning: step {}: sampler and trainer differ by up to {:.3g} in log-probability", m.step,
        m.mismatch_max));
  if (m.skipped) say(fmt::format("warning: step {} skipped: {}", m.step, m.skip_reason));
  if (!groups.empty() && (m.skipped || step <= config.dump_steps)) {
    dump.why = m.skipped ? m.skip_reason : "requested";
    std::error_code error;
    std::filesystem::create_directories(directory->path() / "dumps", error);
    WEFT_TRY(write_dump(directory->dump(m.step), dump));
  }
  WEFT_TRY(directory->add(m));
  result.last = m;
  if (events.on_step) events.on_step(m, groups);
  return {};
}

Status Loop::evaluate() {
  const std::vector<Prompt>& prompts = task->evaluation();
  WEFT_ASSIGN(std::vector<Group> groups,
              roll_out(*engine, prompts, 0,
                       {.group = 1, .max_tokens = config.max_tokens, .temperature = 0.0F}));
  score_groups(*task, groups);
  EvaluationMetrics e{.step = step};
  std::vector<EvaluatedReply> shown;
  for (const Group& group : groups) {
    const Sample& s = group.samples.front();
    if (!s.score.error.empty()) continue;
    ++e.prompts;
    e.exact += s.score.exact;
    e.reward += s.score.reward;
    e.length_mean += static_cast<double>(s.tokens.size());
    if (shown.size() < kShownReplies)
      shown.push_back(
          {group.prompt.text, s.text, group.prompt.reference, s.score.reward, s.score.exact});
  }
  const auto n = static_cast<double>(std::max<std::int64_t>(1, e.prompts));
  e.exact /= n;
  e.reward /= n;
  e.length_mean /= n;
  if (result.last_evaluation.prompts == 0) result.first_evaluation = e;
  if (result.best_evaluation.prompts == 0 || e.exact > result.best_evaluation.exact)
    result.best_evaluation = e;
  result.last_evaluation = e;
  WEFT_TRY(directory->add(e, shown));
  if (events.on_evaluation) events.on_evaluation(e, shown);
  return {};
}

state::CheckpointContent Loop::content() const {
  state::CheckpointContent c;
  c.config = policy->config();
  constexpr std::string_view kMaster = "master/";
  for (model::NamedTensor& t : policy->state(false)) {
    std::string name = t.name.starts_with(kMaster) ? t.name.substr(kMaster.size()) : t.name;
    if (!name.starts_with("value_head.")) c.weights.push_back({std::move(name), t.view});
  }
  c.weight_type = config.compute == "f32" ? DType::kF32 : DType::kBF16;
  c.tokenizer = model.tokenizer;
  if (model.chat_template) c.chat_template = model.chat_template->source();
  return c;
}

// The model, and, where checkpoints are wanted, all that a resumed run needs.
Status Loop::save(bool final) {
  state::CheckpointContent c = content();
  if (final) WEFT_TRY(state::write_model_directory(directory->model(), c));
  if (config.checkpoint_every < 0) return {};
  c.training_state = policy->state(true);
  c.trainer["step"] = step;
  c.trainer["cursor"] = static_cast<std::int64_t>(cursor);
  c.trainer["updates"] = policy->step_count();
  c.trainer["kl_coefficient"] = kl_coefficient;
  c.trainer["alarm_step"] = result.alarm_step;
  c.trainer["learned_steps"] = learned_steps;
  c.trainer["entropies"] = std::vector<double>(entropies.begin(), entropies.end());
  c.trainer["exacts"] = std::vector<double>(exacts.begin(), exacts.end());
  auto written =
      state::write_checkpoint(directory->checkpoints(), step, c, config.keep_checkpoints);
  if (!written) return std::unexpected(written.error());
  return {};
}

Status Loop::run() {
  WEFT_TRY(set_up());
  if (options.resume) {
    WEFT_TRY(resume());
  } else {
    WEFT_ASSIGN(RunDirectory created, RunDirectory::create(options.run, config));
    directory = std::make_unique<RunDirectory>(std::move(created));
  }
  result.run_id = directory->id();
  if (step == 0) {
    WEFT_TRY(warm_start());
    WEFT_TRY(evaluate());
  }
  std::int64_t saved = options.resume ? step : -1;
  while (step < config.steps && !result.learned) {
    WEFT_TRY(run_step());
    result.learned = learned_steps >= kLearnedWindow;
    const bool last = step == config.steps || result.learned;
    result.interrupted = options.stop != nullptr && options.stop->load() && !last;
    if (config.eval_every > 0 && (step % config.eval_every == 0 || last)) WEFT_TRY(evaluate());
    const bool due = config.checkpoint_every > 0 && step % config.checkpoint_every == 0;
    if ((due || result.interrupted) && !last) {
      WEFT_TRY(save(false));
      saved = step;
    }
    if (result.interrupted) break;
  }
  result.steps = step;
  if (result.learned)
    say(
        fmt::format("done at step {}: every reply of {} steps was right, so dynamic sampling finds "
                    "nothing more to learn from",
                    step, kLearnedWindow));
  if (saved != step || !std::filesystem::exists(directory->model()))
    WEFT_TRY(save(step == config.steps || result.learned));
  return {};
}

}  // namespace

Result<LoopResult> run_loop(const RlConfig& config, const LoopOptions& options,
                            const LoopEvents& events, ThreadPool& pool) {
  Loop loop(config, options, events, pool);
  WEFT_TRY(loop.run());
  return loop.result;
}

}  // namespace weft::rl
