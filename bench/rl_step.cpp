// weft bench run rl-step: one whole step of post-training, sampling to new weights.
#include <chrono>
#include <cstdio>

#include "bench/bench.h"
#include "bench/subject.h"
#include "weft/nn/isa.h"
#include "weft/rl/file_tasks.h"
#include "weft/rl/update_step.h"
#include "weft/rl/verifier.h"

namespace weft::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::minutes(5);

rl::RlConfig step_config(std::string_view compute) {
  rl::RlConfig config;
  config.task = "words";
  config.compute = compute;
  config.prompts = 8;
  config.group = 8;
  config.max_tokens = 12;
  config.lr = 1e-5;
  return config;
}

// What `weft rl` holds between two steps, from its own parts.
struct Trainer {
  rl::RlConfig config;
  std::unique_ptr<rl::Task> task;
  std::unique_ptr<train::PolicyModel> policy;
  std::unique_ptr<serve::Engine> engine;
  std::uint64_t step = 0;
  double tokens = 0;  // of the last step's replies

  static Result<Trainer> make(const model::Model& model, std::string_view compute,
                              ThreadPool& pool) {
    Trainer t{.config = step_config(compute), .task = {}, .policy = {}, .engine = {}};
    t.config.model = model.path.string();
    WEFT_TRY(rl::resolve(t.config));
    const rl::FileTaskOptions format{
        .format = {.tokenizer = model.tokenizer, .chat_template = model.chat_template}};
    WEFT_ASSIGN(t.task, rl::make_task(t.config.task, format, {}));
    const train::PolicyOptions options{
        .compute = compute == "f32" ? nn::Compute::kF32 : nn::Compute::kBF16,
        .optimizer = {.weight_decay = t.config.weight_decay}};
    WEFT_ASSIGN(t.policy, train::PolicyModel::create(model.config, model.weights, options, pool));
    serve::EngineOptions engine{.max_batch_tokens = 2048};
    engine.max_sequences = t.config.prompts * t.config.group;
    engine.max_context = t.task->longest_prompt() + t.config.max_tokens + 1;
    t.engine =
        std::make_unique<serve::Engine>(t.policy->current_weights(), model.tokenizer, engine, pool);
    return t;
  }

  std::vector<rl::Prompt> next_prompts() const {
    std::vector<rl::Prompt> prompts;
    for (std::int64_t p = 0; p < config.prompts; ++p) {
      prompts.push_back(task->prompt(step * static_cast<std::uint64_t>(config.prompts) +
                                     static_cast<std::uint64_t>(p)));
    }
    return prompts;
  }

  // Samples, scores, updates, and hands the new weights to the sampler.
  Result<double> seconds(ThreadPool& pool) {
    std::vector<rl::Prompt> prompts = next_prompts();
    ++step;
    const auto begin = Clock::now();
    WEFT_ASSIGN(std::vector<rl::Group> groups,
                rl::roll_out(*engine, std::move(prompts), step,
                             {.group = config.group, .max_tokens = config.max_tokens}));
    rl::score_groups(*task, groups);
    rl::StepMetrics metrics;
    rl::Dump dump;
    const rl::UpdateInput input{.step = static_cast<std::int64_t>(step),
                                .learning_rate = config.lr,
                                .kl_coefficient = 0,
                                .reference = {}};
    WEFT_TRY(rl::update_policy(config, input, groups, *policy, pool, metrics, dump));
    engine->set_weights(policy->current_weights());
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    if (metrics.skipped)
      return fail(ErrorCode::kInternal, "a step was skipped: {}", metrics.skip_reason);
    tokens = 0;
    for (const rl::Group& group : groups) {
      for (const rl::Sample& sample : group.samples)
        tokens += static_cast<double>(sample.tokens.size());
    }
    return seconds.count();
  }
};

// Each prompt once through the layers, twelve steps of all replies, three times the
// products of prompts and replies for the gradients (the output layer for the replies
// alone), and AdamW's 28 bytes a parameter.
double limit_of(const Trainer& trainer, const Subject& subject, MachineLimits limits,
                double prompt) {
  const rl::RlConfig& config = trainer.config;
  if (config.compute == "f32") limits.bf16_flops_per_s = limits.f32_flops_per_s;
  const auto prompts = static_cast<double>(config.prompts);
  const double replies = prompts * static_cast<double>(config.group);
  const auto reply = static_cast<double>(config.max_tokens);
  const double body = subject.body_flops_per_token, head = subject.head_flops_per_token;
  const double prefill = least_seconds(limits, subject.body_bytes, prompts * prompt * body, false);
  const double decode = least_seconds(limits, subject.body_bytes + subject.head_bytes,
                                      replies * (body + head), false);
  const double gradients =
      least_seconds(limits, 0, 3 * replies * ((prompt + reply) * body + reply * head), false);
  const double adamw =
      least_seconds(limits, 28.0 * static_cast<double>(trainer.policy->parameters()), 0, false);
  return 1 / (prefill + reply * decode + gradients + adamw);
}

}  // namespace

Status run_rl_step(const BenchOptions& options, ThreadPool& pool, const Report& report) {
  const MachineLimits limits = measure_limits(pool);
  WEFT_ASSIGN(const std::filesystem::path directory, directory_of(options));
  std::optional<Peer> peer;
  for (const std::string_view compute : {"bf16", "f32"}) {
    Case one;
    const rl::RlConfig shape = step_config(compute);
    one.name = fmt::format("{}/prompts={}/group={}/new={}", compute, shape.prompts, shape.group,
                           shape.max_tokens);
    one.unit = "steps/s";
    if (one.name.find(options.only) == std::string::npos) continue;
    WEFT_ASSIGN(
        const auto subject,
        load_subject(directory, compute == "f32" ? nn::Compute::kF32 : nn::Compute::kBF16, pool));
    WEFT_ASSIGN(Trainer trainer, Trainer::make(subject->model, compute, pool));
    const auto prompt = static_cast<std::int64_t>(trainer.next_prompts().front().tokens.size());
    one.limit = limit_of(trainer, *subject, limits, static_cast<double>(prompt));
    one.ours = [&]() -> Result<double> {
      WEFT_ASSIGN(const double seconds, trainer.seconds(pool));
      return 1 / seconds;
    };
    double peer_tokens = 0;
    if (options.peers) {
      if (!peer) {
        WEFT_ASSIGN(
            peer, Peer::start("torch_peer.py", {directory.string(), std::to_string(pool.threads()),
                                                std::string(nn::to_string(nn::cpu_isa()))}));
      }
      one.peer = [&, prompt]() -> Result<double> {
        const Json request = {{"kind", "rl"},
                              {"mode", "f32"},
                              {"prompts", trainer.config.prompts},
                              {"group", trainer.config.group},
                              {"prompt", prompt},
                              {"new", trainer.config.max_tokens}};
        WEFT_ASSIGN(const Json reply, peer->request(request, Deadline::after(kPatience)));
        WEFT_ASSIGN(peer_tokens, json_field<double>(reply, "tokens"));
        WEFT_ASSIGN(const double seconds, json_field<double>(reply, "seconds"));
        return 1 / seconds;
      };
      one.peer_version = peer->version();
    }
    WEFT_ASSIGN(const CaseResult result, run_case(one, options.rounds));
    if (!options.quiet) {
      std::fprintf(stderr,
                   "weft: rl-step/%s: prompts of %lld tokens; tokens sampled in the last step: "
                   "ours %.0f, the peer's %.0f\n",
                   one.name.c_str(), static_cast<long long>(prompt), trainer.tokens, peer_tokens);
    }
    report(result);
  }
  return {};
}

}  // namespace weft::bench
