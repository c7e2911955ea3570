// weft bench run train-step.
#include <chrono>

#include "bench/bench.h"
#include "bench/subject.h"
#include "weft/nn/isa.h"
#include "weft/train/policy_model.h"

namespace weft::bench {
namespace {

constexpr auto kPatience = std::chrono::minutes(10);
constexpr int kSequences = 16;

// One step of next-token loss over whole sequences; gives its seconds.
Result<double> step_seconds(train::PolicyModel& policy, std::uint64_t salt, std::int64_t length) {
  std::vector<train::TrainSequence> sequences(kSequences);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    sequences[i].tokens = prompt_tokens(policy.config(), salt * 1000 + i, length);
  }
  const auto targets = static_cast<float>(kSequences * (length - 1));
  const auto begin = std::chrono::steady_clock::now();
  WEFT_ASSIGN(const auto outputs,
              policy.accumulate(sequences, {},
                                [targets](const train::TokenOutputs&, train::TokenGradients& out) {
                                  std::ranges::fill(out.logprob, -1.0F / targets);
                                }));
  (void)outputs;
  const train::StepResult result = policy.step(1e-5, 1.0);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (result.skipped) return fail(ErrorCode::kInternal, "the step's gradients are not finite");
  return seconds.count();
}

}  // namespace

Status run_train_step(const BenchOptions& options, ThreadPool& pool, const Report& report) {
  const MachineLimits limits = measure_limits(pool);
  WEFT_ASSIGN(const std::filesystem::path directory, directory_of(options));
  WEFT_ASSIGN(const auto subject, load_subject(directory, nn::Compute::kBF16, pool));
  WEFT_ASSIGN(const auto policy,
              train::PolicyModel::create(subject->model.config, subject->model.weights,
                                         train::PolicyOptions{}, pool));
  std::optional<Peer> peer;
  if (options.peers) {
    WEFT_ASSIGN(peer,
                Peer::start("torch_peer.py", {directory.string(), std::to_string(pool.threads()),
                                              std::string(nn::to_string(nn::cpu_isa()))}));
  }
  std::uint64_t salt = 3'000'000;
  for (const std::int64_t length : {64, 512}) {
    Case one;
    one.name = fmt::format("bf16/seqs={}/len={}", kSequences, length);
    if (one.name.find(options.only) == std::string::npos) continue;
    const double tokens = kSequences * static_cast<double>(length);
    // Forward once and backward twice its products; then AdamW reads and writes
    // weights, gradients and two moments of 4 bytes: 28 bytes a parameter.
    const double flops = 3 * tokens *
                         (subject->body_flops_per_token + subject->head_flops_per_token +
                          attention_flops(subject->model.config, length / 2.0));
    const double adamw = 28.0 * static_cast<double>(policy->parameters());
    one.limit =
        tokens / (least_seconds(limits, 0, flops, false) + least_seconds(limits, adamw, 0, false));
    one.ours = [&, length, tokens]() -> Result<double> {
      WEFT_ASSIGN(const double seconds, step_seconds(*policy, ++salt, length));
      return tokens / seconds;
    };
    if (peer) {
      one.peer = [&, length, tokens]() -> Result<double> {
        const Json request = {
            {"kind", "train"}, {"mode", "autocast"}, {"seqs", kSequences}, {"length", length}};
        WEFT_ASSIGN(const Json reply, peer->request(request, Deadline::after(kPatience)));
        WEFT_ASSIGN(const double seconds, json_field<double>(reply, "seconds"));
        return tokens / seconds;
      };
      one.peer_version = peer->version();
    }
    WEFT_ASSIGN(const CaseResult result, run_case(one, options.rounds));
    report(result);
  }
  return {};
}

}  // namespace weft::bench
