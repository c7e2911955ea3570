// PolicyModel: a language model under training. It owns f32 master weights,
// gradients and AdamW moments, and gives the very weights that a serve::Engine
// runs; its log-probabilities equal the engine's to the bit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/base/thread_pool.h"
#include "weft/model/config.h"
#include "weft/model/load.h"
#include "weft/nn/transformer.h"
#include "weft/train/adamw.h"

namespace weft::train {

// One token sequence to run. Its targets are tokens[first_target ..): each gets a
// log-probability given all tokens before it (1 <= first_target <= tokens.size()).
// Adjacent sequences of the same group >= 0 share their first `shared` tokens
// (shared < first_target): these are computed once, and their gradients sum over the
// group in index order. Sharing changes no bit of the outputs.
struct TrainSequence {
  std::vector<model::TokenId> tokens;
  std::int64_t first_target = 1;
  std::int64_t group = -1;
  std::int64_t shared = 0;
};

struct OutputOptions {
  float temperature = 1.0F;  // logits are divided by it, as the sampler does
  bool entropy = false;      // of the whole distribution at each target, in nats
  bool values = false;       // the value head at each target's state (the token before it)
};

// Per-target values of consecutive sequences, flat in (sequence, position) order.
// Sequence i of `sequences` (an index into the caller's batch) has the targets
// [offsets[i - first_sequence], offsets[i - first_sequence + 1]).
struct TokenOutputs {
  std::size_t first_sequence = 0;
  std::vector<std::int64_t> offsets;
  std::vector<float> logprob;
  std::vector<float> entropy;  // empty unless asked
  std::vector<float> value;    // empty unless asked
};

// dLoss/d(each output), same layout; zero when handed out. entropy and value are
// empty when they were not asked.
struct TokenGradients {
  std::vector<float> logprob, entropy, value;
};

// Gives the gradient of the loss over one micro-batch, a run of whole groups.
// Divide by counts of the whole batch, not of what is seen here: the split into
// micro-batches then changes no bit of the gradient.
using LossGradient = std::function<void(const TokenOutputs&, TokenGradients&)>;

struct PolicyOptions {
  nn::Compute compute = nn::Compute::kBF16;  // kF32 or kBF16, of products forward and backward
  bool value_head = false;
  AdamWOptions optimizer;
  std::int64_t micro_batch_tokens = 2048;  // rows of one forward pass; split between groups only
  // Where forward and backward passes run: cpu, cuda, cuda:N, auto (nn/autograd/device.h).
  // Elsewhere than on the CPU they are libtorch's operators, whose log-probabilities are
  // near the engine's, not equal to the bit.
  std::string device = "cpu";
  bool library_operators = false;  // libtorch's operators on the CPU too
};

struct StepResult {
  double grad_norm = 0.0;  // before clipping
  bool skipped = false;    // gradients not finite: weights and moments unchanged
};

// Not thread-safe. The pool must outlive the model.
class PolicyModel {
 public:
  // Random weights keyed by (seed, tensor): normal with deviation 0.02, the residual
  // outputs (o_proj, down_proj) divided by sqrt(2 layers), norms 1, biases 0.
  static Result<std::unique_ptr<PolicyModel>> create(const model::ModelConfig& config,
                                                     std::uint64_t seed, PolicyOptions options,
                                                     ThreadPool& pool);
  // Weights of a loaded model, dequantised into the f32 masters.
  static Result<std::unique_ptr<PolicyModel>> create(const model::ModelConfig& config,
                                                     const model::WeightSet& weights,
                                                     PolicyOptions options, ThreadPool& pool);
  ~PolicyModel();
  PolicyModel(const PolicyModel&) = delete;
  PolicyModel& operator=(const PolicyModel&) = delete;

  const model::ModelConfig& config() const;
  const PolicyOptions& options() const;
  std::int64_t parameters() const;
  std::int64_t step_count() const;  // optimizer steps done (skipped ones not counted)

  // Forward only. kInvalidArgument names the sequence that is empty, too long or
  // has ids outside the vocabulary.
  Result<TokenOutputs> evaluate(std::span<const TrainSequence> sequences,
                                const OutputOptions& options);
  // Forward, then backward of `loss`; gradients add to those of earlier calls
  // since the last step. Gives the outputs of the forward pass.
  Result<TokenOutputs> accumulate(std::span<const TrainSequence> sequences,
                                  const OutputOptions& options, const LossGradient& loss);
  // Clips to `max_grad_norm` (0 = off), AdamW with `learning_rate`, zeroes the
  // gradients, repacks the weights.
  StepResult step(double learning_rate, double max_grad_norm);
  // The gradients gathered since the last step, under canonical names. To be called
  // after the last accumulate() of a step: it closes the sum of a tied embedding.
  std::vector<model::NamedTensor> gradients();
  // Drops gathered gradients.
  void zero_gradients();

  // What Engine::set_weights takes: this version's weights, immutable. A step makes
  // a new object.
  std::shared_ptr<const nn::TransformerWeights> current_weights() const;

  // Every f32 tensor under its canonical name: "master/<name>", and with
  // `optimizer` also "adamw.m/<name>" and "adamw.v/<name>". Views stay valid until the
  // next step or restore. The value head is "value_head.weight" and "value_head.bias".
  std::vector<model::NamedTensor> state(bool optimizer) const;
  // Puts back what state(true) gave; kCorrupt names a missing or misshapen tensor.
  Status restore(const model::WeightSet& state, std::int64_t step_count);

 private:
  struct Impl;
  explicit PolicyModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Log-probabilities under frozen weights (a reference policy): no gradients, no
// optimizer, the same bits as the engine that runs `weights`.
Result<TokenOutputs> score(const std::shared_ptr<const nn::TransformerWeights>& weights,
                           std::span<const TrainSequence> sequences, const OutputOptions& options,
                           std::int64_t micro_batch_tokens, ThreadPool& pool);

}  // namespace weft::train
