#include "weft/train/policy_model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "weft/base/normals.h"
#include "weft/nn/autograd/device.h"
#include "weft/nn/autograd/transformer.h"
#include "weft/nn/matmul_backward.h"
#include "weft/train/device_model.h"
#include "weft/train/pack_sequences.h"
#include "weft/train/parameter_arena.h"

namespace weft::train {
namespace {

namespace autograd = nn::autograd;

constexpr std::int64_t kMaxLogitBytes = std::int64_t{512} << 20;

at::Tensor view(std::span<float> array, std::int64_t begin, std::int64_t size) {
  return at::from_blob(array.data() + begin, {size}, at::kFloat);
}

void append(std::vector<float>& to, const at::Tensor& from) {
  if (!from.defined()) return;
  const at::Tensor host = from.to(at::kCPU).contiguous();
  const float* values = host.const_data_ptr<float>();
  to.insert(to.end(), values, values + host.numel());
}

autograd::ForwardOptions forward_options(const OutputOptions& options, std::int64_t vocab) {
  return {.temperature = options.temperature,
          .entropy = options.entropy,
          .values = options.values,
          .max_logit_rows = kMaxLogitBytes / (vocab * static_cast<std::int64_t>(sizeof(float)))};
}

TokenOutputs outputs_of(std::span<const TrainSequence> sequences, std::size_t first,
                        const autograd::ForwardOutputs& from) {
  TokenOutputs out;
  out.first_sequence = first;
  out.offsets.push_back(0);
  for (const TrainSequence& s : sequences) {
    out.offsets.push_back(out.offsets.back() + static_cast<std::int64_t>(s.tokens.size()) -
                          s.first_target);
  }
  append(out.logprob, from.logprob);
  append(out.entropy, from.entropy);
  append(out.value, from.value);
  return out;
}

// The outputs of the next micro-batch after those so far.
void extend(TokenOutputs& all, const TokenOutputs& next) {
  if (all.offsets.empty()) all.offsets.push_back(0);
  const std::int64_t base = all.offsets.back();
  for (std::size_t i = 1; i < next.offsets.size(); ++i) {
    all.offsets.push_back(base + next.offsets[i]);
  }
  const auto join = [](std::vector<float>& to, const std::vector<float>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  join(all.logprob, next.logprob);
  join(all.entropy, next.entropy);
  join(all.value, next.value);
}

Status check(const OutputOptions& options, bool value_head) {
  if (!(options.temperature > 0.0F) || !std::isfinite(options.temperature)) {
    return fail(ErrorCode::kInvalidArgument, "the temperature must be above 0, not {}",
                options.temperature);
  }
  if (options.values && !value_head) {
    return fail(ErrorCode::kInvalidArgument,
                "values were asked of a model without a value head; create it with value_head");
  }
  return {};
}

// Runs `body`, which calls torch, and turns its exceptions into an error.
template <class Body>
Status guarded(Body body) {
  try {
    body();
    return {};
  } catch (const std::exception& e) {
    const std::string_view what = e.what();
    return fail(ErrorCode::kInternal, "libtorch: {}", what.substr(0, what.find('\n')));
  }
}

// Forward passes without gradients, micro-batch by micro-batch.
Result<TokenOutputs> run_forward(autograd::Model& model,
                                 const std::shared_ptr<autograd::BufferPool>& buffers,
                                 std::span<const TrainSequence> sequences,
                                 const OutputOptions& options, std::int64_t max_rows, bool composed,
                                 ThreadPool& pool) {
  WEFT_TRY(check(options, model.value_weight.value.defined()));
  WEFT_TRY(validate(sequences, model.config));
  TokenOutputs all;
  all.offsets.push_back(0);
  WEFT_TRY(guarded([&] {
    const at::NoGradGuard no_grad;
    for (const MicroBatch& micro : split(sequences, max_rows)) {
      const auto part = sequences.subspan(micro.begin, micro.end - micro.begin);
      const nn::PackedBatch batch = pack(part);
      autograd::ForwardOutputs out;
      if (batch.targets() > 0) {
        autograd::Run run{.pool = pool, .buffers = buffers, .batch = batch, .composed = composed};
        out = autograd::forward(model, run, forward_options(options, model.config.vocab_size));
      }
      extend(all, outputs_of(part, micro.begin, out));
    }
  }));
  return all;
}

}  // namespace

struct PolicyModel::Impl {
  Impl(const model::ModelConfig& config, PolicyOptions options, ThreadPool& pool)
      : options(std::move(options)),
        pool(pool),
        arena(config, this->options.value_head),
        buffers(std::make_shared<autograd::BufferPool>()) {
    // The kernels have their own threads; torch's would only compete with them.
    at::set_num_threads(1);
    net.config = config;
    bind();
  }

  void initialize(std::uint64_t seed);
  Status load(const model::WeightSet& weights);
  Status refresh();
  Status open_device();
  autograd::Model& network() { return device ? device->network() : net; }

  void flush_embedding() {
    net.embedding_gradient.flush(net.embedding.grad.mutable_data_ptr<float>(), net.config.hidden);
  }
  // Points the network at the arena.
  void bind();
  autograd::Vector vector(const std::string& name);
  autograd::Matrix matrix(const std::string& first_name);
  // Every matrix of the network with its stack; a tied head is not repeated.
  void each_matrix(const std::function<void(autograd::Matrix&, const ParameterStack&)>& body);

  PolicyOptions options;
  ThreadPool& pool;
  ParameterArena arena;
  std::shared_ptr<autograd::BufferPool> buffers;
  autograd::Model net;
  std::unique_ptr<DeviceModel> device;  // null: forward and backward are our kernels on `net`
  std::shared_ptr<nn::TransformerWeights> weights;  // the current version
  std::shared_ptr<nn::TransformerWeights> retired;  // the one before, reused once free
  std::int64_t steps = 0;
};

autograd::Vector PolicyModel::Impl::vector(const std::string& name) {
  const ParameterStack* stack = arena.stack(name);
  if (stack == nullptr) return {};
  const std::int64_t size = stack->rows * stack->columns;
  return {.value = view(arena.values(), stack->begin, size),
          .grad = view(arena.gradients(), stack->begin, size)};
}

autograd::Matrix PolicyModel::Impl::matrix(const std::string& first_name) {
  const ParameterStack* stack = arena.stack(first_name);
  WEFT_CHECK(stack != nullptr, "no parameter {}", first_name);
  const std::int64_t size = stack->rows * stack->columns;
  autograd::Matrix matrix;
  matrix.value = view(arena.values(), stack->begin, size).view({stack->rows, stack->columns});
  matrix.grad = view(arena.gradients(), stack->begin, size).view({stack->rows, stack->columns});
  return matrix;
}

void PolicyModel::Impl::bind() {
  net.embedding = matrix("model.embed_tokens.weight");
  net.positions = vector("model.embed_positions.weight");
  for (std::int64_t i = 0; i < net.config.layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".";
    const std::string up = at + (net.config.gated_mlp ? "mlp.gate_proj" : "mlp.up_proj");
    net.layers.push_back({
        .attention_norm = vector(at + "input_layernorm.weight"),
        .attention_norm_bias = vector(at + "input_layernorm.bias"),
        .mlp_norm = vector(at + "post_attention_layernorm.weight"),
        .mlp_norm_bias = vector(at + "post_attention_layernorm.bias"),
        .q_norm = vector(at + "self_attn.q_norm.weight"),
        .k_norm = vector(at + "self_attn.k_norm.weight"),
        .qkv = matrix(at + "self_attn.q_proj.weight"),
        .o = matrix(at + "self_attn.o_proj.weight"),
        .gate_up = matrix(up + ".weight"),
        .down = matrix(at + "mlp.down_proj.weight"),
        .qkv_bias = vector(at + "self_attn.q_proj.bias"),
        .o_bias = vector(at + "self_attn.o_proj.bias"),
        .gate_up_bias = vector(up + ".bias"),
        .down_bias = vector(at + "mlp.down_proj.bias"),
    });
  }
  net.final_norm = vector("model.norm.weight");
  net.final_norm_bias = vector("model.norm.bias");
  net.lm_head = net.config.tie_embeddings ? net.embedding : matrix("lm_head.weight");
  net.value_weight = vector("value_head.weight");
  net.value_bias = vector("value_head.bias");
}

void PolicyModel::Impl::initialize(std::uint64_t seed) {
  const double deviation = 0.02;
  const double residual = deviation / std::sqrt(2.0 * static_cast<double>(net.config.layers));
  for (std::size_t index = 0; index < arena.entries().size(); ++index) {
    const ParameterEntry& entry = arena.entries()[index];
    const std::span<float> values = arena.values().subspan(static_cast<std::size_t>(entry.begin),
                                                           static_cast<std::size_t>(entry.size));
    if (entry.shape.size() == 1) {
      const bool one =
          entry.name.ends_with("norm.weight") || entry.name.ends_with("layernorm.weight");
      std::ranges::fill(values, one ? 1.0F : 0.0F);
      continue;
    }
    const bool output =
        entry.name.ends_with("o_proj.weight") || entry.name.ends_with("down_proj.weight");
    const auto scale = static_cast<float>(output ? residual : deviation);
    const std::int64_t columns = entry.shape[1];
    pool.parallel_for(entry.shape[0], 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const auto part = values.subspan(static_cast<std::size_t>(row * columns),
                                         static_cast<std::size_t>(columns));
        fill_normals(Rng(seed, RngUse::kInit, index, static_cast<std::uint32_t>(row)), part);
        for (float& value : part) value *= scale;
      }
    });
  }
}

Status PolicyModel::Impl::load(const model::WeightSet& weights) {
  WEFT_TRY(model::check_weights(net.config, weights));
  for (const ParameterEntry& entry : arena.entries()) {
    if (entry.name.starts_with("value_head.")) continue;  // zero: a value of 0 everywhere
    WEFT_ASSIGN(const TensorView from, weights.get(entry.name));
    WEFT_TRY(model::dequantize(from, arena.values().data() + entry.begin));
  }
  return {};
}

void PolicyModel::Impl::each_matrix(
    const std::function<void(autograd::Matrix&, const ParameterStack&)>& body) {
  const auto visit = [&](autograd::Matrix& matrix) {
    const std::int64_t begin = matrix.value.const_data_ptr<float>() - arena.values().data();
    for (const ParameterStack& stack : arena.stacks()) {
      if (stack.begin == begin) return body(matrix, stack);
    }
  };
  visit(net.embedding);
  for (autograd::Layer& layer : net.layers) {
    for (autograd::Matrix* m : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) visit(*m);
  }
  if (!net.config.tie_embeddings) visit(net.lm_head);
}

Status PolicyModel::Impl::refresh() {
  // The version to overwrite: the current one or the one before, if nobody else holds it.
  std::shared_ptr<nn::TransformerWeights> target;
  if (weights && weights.use_count() == 1) {
    target = std::move(weights);
  } else if (retired && retired.use_count() == 1) {
    target = std::move(retired);
  }
  net.weights.reset();
  const bool fresh = target == nullptr;
  if (fresh) {
    model::WeightSet masters;
    for (model::NamedTensor& tensor : arena.views(arena.values()))
      masters.add(std::move(tensor), nullptr);
    WEFT_ASSIGN(const std::shared_ptr<const nn::TransformerWeights> built,
                nn::build_weights(net.config, masters, options.compute, pool));
    // Nobody has seen this object yet, so it may still change.
    target = std::const_pointer_cast<nn::TransformerWeights>(built);
  }
  if (weights) retired = std::move(weights);
  weights = std::move(target);
  nn::TransformerWeights& w = *weights;

  net.embedding.packed = w.embedding;
  net.lm_head.packed = w.lm_head;
  const auto copy = [](const autograd::Vector& from, std::vector<float>& to) {
    if (!from.value.defined()) return;
    const float* values = from.value.const_data_ptr<float>();
    std::copy_n(values, to.size(), to.begin());
  };
  copy(net.positions, w.positions);
  copy(net.final_norm, w.final_norm);
  copy(net.final_norm_bias, w.final_norm_bias);
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    autograd::Layer& to = net.layers[i];
    nn::LayerWeights& from = w.layers[i];
    to.qkv.packed = from.qkv;
    to.o.packed = from.o;
    to.gate_up.packed = from.gate_up;
    to.down.packed = from.down;
    copy(to.attention_norm, from.attention_norm);
    copy(to.attention_norm_bias, from.attention_norm_bias);
    copy(to.mlp_norm, from.mlp_norm);
    copy(to.mlp_norm_bias, from.mlp_norm_bias);
    copy(to.q_norm, from.q_norm);
    copy(to.k_norm, from.k_norm);
    copy(to.qkv_bias, from.qkv_bias);
    copy(to.o_bias, from.o_bias);
    copy(to.gate_up_bias, from.gate_up_bias);
    copy(to.down_bias, from.down_bias);
  }

  Status status;
  each_matrix([&](autograd::Matrix& matrix, const ParameterStack& stack) {
    if (!status) return;
    const TensorView master{
        .data = reinterpret_cast<const std::byte*>(arena.values().data() + stack.begin),
        .dtype = DType::kF32,
        .shape = {stack.rows, stack.columns}};
    if (!matrix.transposed) {
      auto packed = nn::pack_transposed({master}, options.compute, pool);
      if (!packed) {
        status = std::unexpected(packed.error());
        return;
      }
      matrix.transposed = *std::move(packed);
      if (!fresh) nn::repack({master}, matrix.packed, {}, pool);
    } else {
      nn::repack({master}, fresh ? nn::PackedMatrix() : matrix.packed, matrix.transposed, pool);
    }
  });
  WEFT_TRY(status);
  if (net.config.tie_embeddings) net.lm_head.transposed = net.embedding.transposed;
  if (!device) return {};
  return guarded([&] { device->upload(net); });
}

Status PolicyModel::Impl::open_device() {
  WEFT_ASSIGN(const at::Device chosen, autograd::open_device(options.device));
  if (!chosen.is_cpu() || options.library_operators) {
    device = std::make_unique<DeviceModel>(chosen);
  }
  return {};
}

PolicyModel::PolicyModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PolicyModel::~PolicyModel() = default;

namespace {

Status check(const model::ModelConfig& config, const PolicyOptions& options) {
  WEFT_TRY(model::validate(config));
  if (options.compute == nn::Compute::kInt8) {
    return fail(ErrorCode::kUnsupported, "training computes in f32 or bf16, not int8");
  }
  if (options.micro_batch_tokens < 1) {
    return fail(ErrorCode::kOutOfRange, "micro_batch_tokens must be at least 1, not {}",
                options.micro_batch_tokens);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<PolicyModel>> PolicyModel::create(const model::ModelConfig& config,
                                                         std::uint64_t seed, PolicyOptions options,
                                                         ThreadPool& pool) {
  WEFT_TRY(check(config, options));
  auto impl = std::make_unique<Impl>(config, std::move(options), pool);
  WEFT_TRY(impl->open_device());
  impl->initialize(seed);
  WEFT_TRY(impl->refresh());
  return std::unique_ptr<PolicyModel>(new PolicyModel(std::move(impl)));
}

Result<std::unique_ptr<PolicyModel>> PolicyModel::create(const model::ModelConfig& config,
                                                         const model::WeightSet& weights,
                                                         PolicyOptions options, ThreadPool& pool) {
  WEFT_TRY(check(config, options));
  auto impl = std::make_unique<Impl>(config, std::move(options), pool);
  WEFT_TRY(impl->open_device());
  WEFT_TRY(impl->load(weights));
  WEFT_TRY(impl->refresh());
  return std::unique_ptr<PolicyModel>(new PolicyModel(std::move(impl)));
}

const model::ModelConfig& PolicyModel::config() const { return impl_->net.config; }
const PolicyOptions& PolicyModel::options() const { return impl_->options; }
std::int64_t PolicyModel::parameters() const { return impl_->arena.parameters(); }
std::int64_t PolicyModel::step_count() const { return impl_->steps; }

Result<TokenOutputs> PolicyModel::evaluate(std::span<const TrainSequence> sequences,
                                           const OutputOptions& options) {
  return run_forward(impl_->network(), impl_->buffers, sequences, options,
                     impl_->options.micro_batch_tokens, impl_->device != nullptr, impl_->pool);
}

Result<TokenOutputs> PolicyModel::accumulate(std::span<const TrainSequence> sequences,
                                             const OutputOptions& options,
                                             const LossGradient& loss) {
  Impl& s = *impl_;
  WEFT_TRY(check(options, s.options.value_head));
  WEFT_TRY(validate(sequences, s.net.config));
  TokenOutputs all;
  all.offsets.push_back(0);
  WEFT_TRY(guarded([&] {
    for (const MicroBatch& micro : split(sequences, s.options.micro_batch_tokens)) {
      const auto part = sequences.subspan(micro.begin, micro.end - micro.begin);
      const nn::PackedBatch batch = pack(part);
      if (batch.targets() == 0) {
        extend(all, outputs_of(part, micro.begin, {}));
        continue;
      }
      autograd::Run run{
          .pool = s.pool, .buffers = s.buffers, .batch = batch, .composed = s.device != nullptr};
      const at::AutoGradMode grad(true);
      const autograd::ForwardOutputs forward =
          autograd::forward(s.network(), run, forward_options(options, s.net.config.vocab_size));
      const TokenOutputs outputs = outputs_of(part, micro.begin, forward);
      TokenGradients gradients;
      gradients.logprob.assign(outputs.logprob.size(), 0.0F);
      gradients.entropy.assign(outputs.entropy.size(), 0.0F);
      gradients.value.assign(outputs.value.size(), 0.0F);
      loss(outputs, gradients);
      std::vector<at::Tensor> roots, given;
      const auto root = [&](const at::Tensor& output, std::vector<float>& gradient) {
        if (!output.defined()) return;
        roots.push_back(output);
        given.push_back(
            at::from_blob(gradient.data(), {output.numel()}, at::kFloat).to(output.device()));
      };
      root(forward.logprob, gradients.logprob);
      root(forward.entropy, gradients.entropy);
      root(forward.value, gradients.value);
      torch::autograd::backward(roots, given);
      if (s.device) s.device->collect(s.net);
      extend(all, outputs);
    }
  }));
  return all;
}

StepResult PolicyModel::step(double learning_rate, double max_grad_norm) {
  Impl& s = *impl_;
  s.flush_embedding();
  StepResult result;
  result.grad_norm = gradient_norm(s.arena.gradients(), s.pool);
  if (!std::isfinite(result.grad_norm)) {
    result.skipped = true;
    zero_gradients();
    return result;
  }
  double scale = 1.0;
  if (max_grad_norm > 0.0 && result.grad_norm > max_grad_norm) {
    scale = max_grad_norm / result.grad_norm;
  }
  ++s.steps;
  adamw_step(s.options.optimizer, s.steps, learning_rate, scale, s.arena.ranges(), s.arena.values(),
             s.arena.gradients(), s.arena.first_moment(), s.arena.second_moment(), s.pool);
  const Status refreshed = s.refresh();
  WEFT_CHECK(refreshed.has_value(), "{}", refreshed.error().message);
  return result;
}

std::vector<model::NamedTensor> PolicyModel::gradients() {
  impl_->flush_embedding();
  return impl_->arena.views(impl_->arena.gradients());
}

void PolicyModel::zero_gradients() {
  impl_->net.embedding_gradient = {};
  std::ranges::fill(impl_->arena.gradients(), 0.0F);
}

std::shared_ptr<const nn::TransformerWeights> PolicyModel::current_weights() const {
  return impl_->weights;
}

std::vector<model::NamedTensor> PolicyModel::state(bool optimizer) const {
  ParameterArena& arena = impl_->arena;
  std::vector<model::NamedTensor> all = arena.views(arena.values(), "master/");
  if (optimizer) {
    for (auto& tensor : arena.views(arena.first_moment(), "adamw.m/")) all.push_back(tensor);
    for (auto& tensor : arena.views(arena.second_moment(), "adamw.v/")) all.push_back(tensor);
  }
  return all;
}

Status PolicyModel::restore(const model::WeightSet& state, std::int64_t step_count) {
  Impl& s = *impl_;
  const std::vector<model::NamedTensor> wanted = this->state(true);
  // All are checked before any is copied: a failed restore changes nothing.
  for (const model::NamedTensor& tensor : wanted) {
    const TensorView* from = state.find(tensor.name);
    if (from == nullptr) {
      return fail(ErrorCode::kCorrupt, "the checkpoint has no tensor {}", tensor.name);
    }
    if (from->dtype != DType::kF32 || from->shape != tensor.view.shape) {
      return fail(ErrorCode::kCorrupt, "tensor {} of the checkpoint has another shape or type",
                  tensor.name);
    }
  }
  for (const model::NamedTensor& tensor : wanted) {
    const TensorView* from = state.find(tensor.name);
    std::copy_n(from->data, from->bytes(), const_cast<std::byte*>(tensor.view.data));
  }
  s.steps = step_count;
  zero_gradients();
  return s.refresh();
}

Result<TokenOutputs> score(const std::shared_ptr<const nn::TransformerWeights>& weights,
                           std::span<const TrainSequence> sequences, const OutputOptions& options,
                           std::int64_t micro_batch_tokens, ThreadPool& pool) {
  at::set_num_threads(1);
  autograd::Model model = autograd::frozen_model(weights);
  return run_forward(model, std::make_shared<autograd::BufferPool>(), sequences, options,
                     micro_batch_tokens, false, pool);
}

}  // namespace weft::train
