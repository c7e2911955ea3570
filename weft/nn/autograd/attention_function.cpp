// Attention and the log-probabilities of functions.h.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "weft/base/result.h"
#include "weft/nn/autograd/composed.h"
#include "weft/nn/autograd/functions.h"
#include "weft/nn/autograd/tensor_access.h"
#include "weft/nn/matmul_backward.h"
#include "weft/nn/ops_backward.h"

namespace weft::nn::autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// What the backward pass of attention keeps; held by the context as a capsule.
struct AttentionState : torch::CustomClassHolder {
  Run* run = nullptr;
  const Vector *q_norm = nullptr, *k_norm = nullptr;
  AttentionConfig config;
  at::Tensor qkv;           // rotated (and normalised)
  at::Tensor raw, inv_rms;  // QK-norm: q and k before it, [rows, heads + kv_heads]
  at::Tensor out, logsumexp;
};

// Normalises each head of q and k of each row in place, as Transformer::attend does.
void normalize_heads(AttentionState& s, ThreadPool& pool) {
  const AttentionShape& shape = s.config.shape;
  const std::int64_t rows = s.qkv.size(0), ld = s.qkv.size(1), d = shape.head_dim;
  const std::int64_t all = shape.heads + shape.kv_heads;
  s.raw = s.run->buffers->empty({rows, all * d});
  s.inv_rms = s.run->buffers->empty({rows, all});
  pool.parallel_for(rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* q = mutable_data(s.qkv) + i * ld;
      float* k = q + shape.heads * d;
      float* inv = mutable_data(s.inv_rms) + i * all;
      std::copy_n(q, all * d, mutable_data(s.raw) + i * all * d);
      rms_norm(q, data(s.q_norm->value), s.config.norm_eps, shape.heads, d, q, inv, pool);
      rms_norm(k, data(s.k_norm->value), s.config.norm_eps, shape.kv_heads, d, k, inv + shape.heads,
               pool);
    }
  });
}

// dqkv: gradient by the normalised q and k, in place to that by the raw ones.
void normalize_heads_backward(AttentionState& s, const at::Tensor& dqkv, ThreadPool& pool) {
  const AttentionShape& shape = s.config.shape;
  const std::int64_t rows = dqkv.size(0), ld = dqkv.size(1), d = shape.head_dim;
  const std::int64_t all = shape.heads + shape.kv_heads;
  const struct {
    const Vector* norm;
    std::int64_t first, heads;
  } parts[] = {{s.q_norm, 0, shape.heads}, {s.k_norm, shape.heads, shape.kv_heads}};
  for (const auto& part : parts) {
    const std::int64_t width = part.heads * d;
    at::Tensor x = s.run->buffers->empty({rows, width}), dy = s.run->buffers->empty({rows, width});
    at::Tensor inv = s.run->buffers->empty({rows, part.heads});
    for (std::int64_t i = 0; i < rows; ++i) {
      std::copy_n(data(s.raw) + i * all * d + part.first * d, width, mutable_data(x) + i * width);
      std::copy_n(data(dqkv) + i * ld + part.first * d, width, mutable_data(dy) + i * width);
      std::copy_n(data(s.inv_rms) + i * all + part.first, part.heads,
                  mutable_data(inv) + i * part.heads);
    }
    at::Tensor dx = s.run->buffers->empty({rows, width});
    rms_norm_backward(data(x), data(part.norm->value), data(inv), data(dy), nullptr,
                      rows * part.heads, d, mutable_data(dx), mutable_data(part.norm->grad), pool);
    for (std::int64_t i = 0; i < rows; ++i) {
      std::copy_n(data(dx) + i * width, width, mutable_data(dqkv) + i * ld + part.first * d);
    }
  }
}

void rotate(AttentionState& s, const at::Tensor& qkv, bool inverse) {
  if (s.config.rope == nullptr) return;
  const AttentionShape& shape = s.config.shape;
  rope(*s.config.rope, s.run->batch.positions.data(), qkv.size(0), shape.heads + shape.kv_heads,
       shape.head_dim, mutable_data(qkv), qkv.size(1), inverse, s.run->pool);
}

struct AttentionFunction : Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, Run* run,
                            const Vector* q_norm, const Vector* k_norm,
                            const AttentionConfig* config) {
    auto state = c10::make_intrusive<AttentionState>();
    AttentionState& s = *state;
    s.run = run;
    s.q_norm = q_norm;
    s.k_norm = k_norm;
    s.config = *config;
    s.qkv = qkv.detach();
    const AttentionShape& shape = config->shape;
    if (q_norm->value.defined()) normalize_heads(s, run->pool);
    rotate(s, s.qkv, /*inverse=*/false);
    s.out = run->buffers->empty({qkv.size(0), shape.heads * shape.head_dim});
    s.logsumexp = run->buffers->empty({qkv.size(0), shape.heads});
    config->kv->attend(shape, data(s.qkv), mutable_data(s.out), mutable_data(s.logsumexp),
                       run->pool);
    at::Tensor out = s.out.detach();
    context->saved_data["state"] = c10::IValue::make_capsule(std::move(state));
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto& s = static_cast<AttentionState&>(*context->saved_data["state"].toCapsule());
    const AttentionShape& shape = s.config.shape;
    const at::Tensor dout = gradients[0].contiguous();
    at::Tensor dqkv = s.run->buffers->empty({s.qkv.size(0), s.qkv.size(1)});
    attention_backward({.heads = shape.heads,
                        .kv_heads = shape.kv_heads,
                        .head_dim = shape.head_dim,
                        .scale = shape.scale,
                        .window = shape.window,
                        .qkv = data(s.qkv),
                        .out = data(s.out),
                        .logsumexp = data(s.logsumexp),
                        .dout = data(dout),
                        .dqkv = mutable_data(dqkv),
                        .bf16 = s.config.bf16_backward},
                       s.run->batch.segments, s.run->pool);
    rotate(s, dqkv, /*inverse=*/true);
    if (s.q_norm->value.defined()) normalize_heads_backward(s, dqkv, s.run->pool);
    return {dqkv, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// Runs of targets whose logits exist together. A unit is cut only at multiples of
// `kDepthBlock` rows, where the weight gradient's order of summation does not notice.
struct Chunk {
  std::int64_t begin, end;
  std::vector<std::int64_t> units;  // rows of each piece of a unit
};
constexpr std::int64_t kDepthBlock = 32;

std::vector<Chunk> cut(const std::vector<std::int64_t>& units, std::int64_t max_rows) {
  max_rows = std::max(kDepthBlock, max_rows / kDepthBlock * kDepthBlock);
  std::vector<Chunk> chunks;
  std::int64_t at = 0;
  for (const std::int64_t unit : units) {
    for (const std::int64_t unit_end = at + unit; at < unit_end;) {
      const std::int64_t end = std::min(unit_end, at + max_rows);
      if (chunks.empty() || end - chunks.back().begin > max_rows) chunks.push_back({at, at, {}});
      chunks.back().end = end;
      chunks.back().units.push_back(end - at);
      at = end;
    }
  }
  return chunks;
}

struct LogProbState : torch::CustomClassHolder {
  Run* run = nullptr;
  const Matrix* head = nullptr;
  float temperature = 1.0F;
  bool wants_entropy = false;
  std::vector<Chunk> chunks;
  at::Tensor states, logits, lse, entropy;  // logits: of the one chunk, if there is one
};

at::Tensor chunk_logits(const LogProbState& s, const Chunk& chunk) {
  const std::int64_t rows = chunk.end - chunk.begin, hidden = s.states.size(1);
  at::Tensor logits = s.run->buffers->empty({rows, s.head->packed.out()});
  matmul(s.head->packed, data(s.states) + chunk.begin * hidden, rows, hidden, nullptr,
         mutable_data(logits), logits.size(1), s.run->pool);
  return logits;
}

struct LogProbFunction : Function<LogProbFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& states, Run* run,
                               const Matrix* head, double temperature, bool entropy,
                               std::int64_t max_logit_rows) {
    auto state = c10::make_intrusive<LogProbState>();
    LogProbState& s = *state;
    s.run = run;
    s.head = head;
    s.temperature = static_cast<float>(temperature);
    s.wants_entropy = entropy;
    s.states = states.detach();
    s.chunks = cut(run->batch.target_units, max_logit_rows);
    const std::int64_t targets = states.size(0), vocab = head->packed.out();
    s.lse = run->buffers->empty({targets});
    s.entropy = entropy ? run->buffers->empty({targets}) : at::Tensor();
    at::Tensor logprob = run->buffers->empty({targets});
    std::vector<float> max(static_cast<std::size_t>(targets));
    for (const Chunk& chunk : s.chunks) {
      const at::Tensor logits = chunk_logits(s, chunk);
      const std::int64_t rows = chunk.end - chunk.begin;
      float* lse = mutable_data(s.lse) + chunk.begin;
      log_sum_exp(data(logits), rows, vocab, s.temperature, max.data(), lse, run->pool);
      for (std::int64_t i = 0; i < rows; ++i) {
        // As the sampler: see nn::log_prob.
        const std::int64_t token =
            run->batch.target_tokens[static_cast<std::size_t>(chunk.begin + i)];
        mutable_data(logprob)[chunk.begin + i] =
            data(logits)[i * vocab + token] * (1.0F / s.temperature) - lse[i];
      }
      if (entropy) {
        row_entropy(data(logits), lse, rows, vocab, s.temperature,
                    mutable_data(s.entropy) + chunk.begin, run->pool);
      }
      if (s.chunks.size() == 1) s.logits = logits;
    }
    const at::Tensor entropies = entropy ? s.entropy.detach() : at::Tensor();
    context->saved_data["state"] = c10::IValue::make_capsule(std::move(state));
    if (!entropy) return {logprob};
    return {logprob, entropies};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto& s = static_cast<LogProbState&>(*context->saved_data["state"].toCapsule());
    const std::int64_t targets = s.states.size(0), hidden = s.states.size(1);
    const std::int64_t vocab = s.head->packed.out();
    const auto or_zero = [&](std::size_t i) {
      return gradients.size() > i && gradients[i].defined() ? gradients[i].contiguous()
                                                            : at::zeros({targets}, at::kFloat);
    };
    const at::Tensor dlogprob = or_zero(0);
    const at::Tensor dentropy = s.wants_entropy ? or_zero(1) : at::Tensor();
    at::Tensor dstates = s.run->buffers->empty({targets, hidden});
    for (const Chunk& chunk : s.chunks) {
      const at::Tensor logits = s.logits.defined() ? s.logits : chunk_logits(s, chunk);
      const auto part = [&](const at::Tensor& t) {
        return t.defined() ? data(t) + chunk.begin : nullptr;
      };
      // In place, a few rows at a time, just before they are rounded for the products.
      const Rows dlogits{
          nullptr, 0, [&](std::int64_t begin, std::int64_t end, float* /*buffer*/) -> const float* {
            const auto from = [&](const float* p) { return p == nullptr ? p : p + begin; };
            float* block = mutable_data(logits) + begin * vocab;
            log_prob_backward(block, from(part(s.lse)),
                              s.run->batch.target_tokens.data() + chunk.begin + begin,
                              from(part(dlogprob)), from(part(s.entropy)), from(part(dentropy)),
                              end - begin, vocab, s.temperature, s.run->pool);
            return block;
          }};
      matmul_backward(s.head->transposed, chunk.units, dlogits,
                      {data(s.states) + chunk.begin * hidden, hidden, nullptr},
                      mutable_data(s.head->grad), mutable_data(dstates) + chunk.begin * hidden,
                      s.run->pool);
    }
    s.logits = at::Tensor();  // overwritten: a second backward must not use it
    return {dstates, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor attention(Run& run, const at::Tensor& qkv, const Vector& q_norm, const Vector& k_norm,
                     const AttentionConfig& config) {
  if (run.composes(qkv)) return composed::attention(run.batch, qkv, q_norm, k_norm, config);
  return AttentionFunction::apply(qkv, &run, &q_norm, &k_norm, &config);
}

LogProbs log_probs(Run& run, const at::Tensor& states, const Matrix& head, float temperature,
                   bool entropy, std::int64_t max_logit_rows) {
  if (run.composes(states))
    return composed::log_probs(run.batch, states, head, temperature, entropy);
  const variable_list out = LogProbFunction::apply(
      states, &run, &head, static_cast<double>(temperature), entropy, max_logit_rows);
  return {out[0], entropy ? out[1] : at::Tensor()};
}

}  // namespace weft::nn::autograd
