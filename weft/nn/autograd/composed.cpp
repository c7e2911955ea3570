#include "weft/nn/autograd/composed.h"

#include <ATen/ATen.h>

namespace weft::nn::autograd::composed {
namespace {

template <class T>
at::Tensor indices(const std::vector<T>& values, const at::Tensor& like) {
  at::Tensor t = at::empty({static_cast<std::int64_t>(values.size())}, at::kLong);
  for (std::size_t i = 0; i < values.size(); ++i) {
    t.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(values[i]);
  }
  return t.to(like.device());
}

// x [rows, heads, head_dim], cos and sin [rows, rotary / 2]; half-split form.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const std::int64_t half = cos.size(1);
  const at::Tensor a = x.slice(2, 0, half), b = x.slice(2, half, 2 * half);
  const at::Tensor c = cos.unsqueeze(1), s = sin.unsqueeze(1);
  return at::cat({a * c - b * s, b * c + a * s, x.slice(2, 2 * half)}, 2);
}

}  // namespace

at::Tensor embedding(const PackedBatch& batch, const Matrix& table, const Vector& positions,
                     std::int64_t hidden) {
  at::Tensor x = table.value.index_select(0, indices(batch.tokens, table.value));
  if (positions.value.defined()) {
    x = x + positions.value.view({-1, hidden}).index_select(0, indices(batch.positions, x));
  }
  return x;
}

at::Tensor linear(const at::Tensor& x, const Matrix& weight, const Vector& bias) {
  if (weight.packed && weight.packed.compute() == Compute::kBF16 && !x.is_cpu()) {
    at::Tensor y = at::linear(x.to(at::kBFloat16), weight.value.to(at::kBFloat16)).to(at::kFloat);
    return bias.value.defined() ? y + bias.value : y;
  }
  at::Tensor y = at::matmul(x, weight.value.t());
  return bias.value.defined() ? y + bias.value : y;
}

at::Tensor norm(const at::Tensor& x, const Vector& weight, const Vector& bias, float eps) {
  if (!bias.value.defined()) {
    return x * (x * x).mean(-1, true).add(eps).rsqrt() * weight.value;
  }
  return at::layer_norm(x, {x.size(-1)}, weight.value, bias.value, eps);
}

at::Tensor select(const PackedBatch& batch, const at::Tensor& x) {
  return x.index_select(0, indices(batch.target_rows, x));
}

at::Tensor attention(const PackedBatch& batch, const at::Tensor& qkv, const Vector& q_norm,
                     const Vector& k_norm, const AttentionConfig& config) {
  const AttentionShape& s = config.shape;
  const std::int64_t rows = qkv.size(0);
  const at::Tensor all = qkv.view({rows, s.heads + 2 * s.kv_heads, s.head_dim});
  at::Tensor q = all.slice(1, 0, s.heads), k = all.slice(1, s.heads, s.heads + s.kv_heads);
  const at::Tensor v = all.slice(1, s.heads + s.kv_heads);
  if (q_norm.value.defined()) {
    q = norm(q, q_norm, {}, config.norm_eps);
    k = norm(k, k_norm, {}, config.norm_eps);
  }
  const at::Tensor positions = indices(batch.positions, qkv);
  if (config.rope != nullptr) {
    const auto table = [&](const std::vector<float>& values) {
      return at::tensor(values)
          .view({-1, config.rope->rotary_dim / 2})
          .to(qkv.device())
          .index_select(0, positions);
    };
    const at::Tensor cos = table(config.rope->cos), sin = table(config.rope->sin);
    q = rotate(q, cos, sin);
    k = rotate(k, cos, sin);
  }
  std::vector<at::Tensor> outs;
  for (const Segment& segment : batch.segments) {
    std::vector<at::Tensor> keys, values, at_positions;
    const auto take = [&](const Segment& part) {
      keys.push_back(k.slice(0, part.begin, part.end));
      values.push_back(v.slice(0, part.begin, part.end));
      at_positions.push_back(positions.slice(0, part.begin, part.end));
    };
    if (segment.parent >= 0) take(batch.segments[static_cast<std::size_t>(segment.parent)]);
    take(segment);
    const std::int64_t group = s.heads / s.kv_heads;
    // [heads, keys, head_dim]
    const at::Tensor key = at::cat(keys, 0).repeat_interleave(group, 1).transpose(0, 1);
    const at::Tensor value = at::cat(values, 0).repeat_interleave(group, 1).transpose(0, 1);
    const at::Tensor query = q.slice(0, segment.begin, segment.end).transpose(0, 1);
    at::Tensor scores = at::matmul(query, key.transpose(1, 2)) * s.scale;
    const at::Tensor distance = positions.slice(0, segment.begin, segment.end).unsqueeze(1) -
                                at::cat(at_positions, 0).unsqueeze(0);
    at::Tensor hidden = distance < 0;
    if (s.window > 0) hidden = hidden.logical_or(distance >= s.window);
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
    outs.push_back(at::matmul(scores.softmax(-1), value)
                       .transpose(0, 1)
                       .reshape({segment.end - segment.begin, s.heads * s.head_dim}));
  }
  return at::cat(outs, 0);
}

at::Tensor gated_silu(const at::Tensor& gate_up) {
  const std::int64_t n = gate_up.size(1) / 2;
  return at::silu(gate_up.slice(1, 0, n)) * gate_up.slice(1, n);
}

at::Tensor gelu(const at::Tensor& x, bool tanh_form) {
  return at::gelu(x, tanh_form ? "tanh" : "none");
}

LogProbs log_probs(const PackedBatch& batch, const at::Tensor& states, const Matrix& head,
                   float temperature, bool entropy) {
  const at::Tensor logp = (linear(states, head, {}) / temperature).log_softmax(-1);
  LogProbs out;
  out.logprob = logp.gather(1, indices(batch.target_tokens, states).unsqueeze(1)).squeeze(1);
  if (entropy) out.entropy = -(logp.exp() * logp).sum(-1);
  return out;
}

at::Tensor value_head(const at::Tensor& states, const Vector& weight, const Vector& bias) {
  return at::matmul(states, weight.value) + bias.value;
}

}  // namespace weft::nn::autograd::composed
