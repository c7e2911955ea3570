// norm_linear and gated_mlp of functions.h: chains of operators whose inner results are
// made block by block where the next product rounds them (nn::Rows), and made again in
// the backward pass. At 2,048 rows of SmolLM2 a chain's activations are 25 MB in f32:
// keeping them costs more time in memory than computing them.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

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

Rows array(const at::Tensor& t) { return {data(t), t.size(1), nullptr}; }

// sum = x + delta and its norm, whose rows are made on demand.
struct NormedSum {
  Run* run = nullptr;
  const Vector *weight = nullptr, *bias = nullptr;
  float eps = 0.0F;
  at::Tensor sum, mean, inv_std;

  NormedSum() = default;
  NormedSum(Run* run, const NormParameters& norm)
      : run(run), weight(norm.weight), bias(norm.bias), eps(norm.eps) {}

  void norm(std::int64_t begin, std::int64_t end, float* to) {
    const std::int64_t n = sum.size(1);
    const float* rows = data(sum) + begin * n;
    if (bias->value.defined()) {
      layer_norm(rows, data(weight->value), data(bias->value), eps, end - begin, n, to,
                 mutable_data(mean) + begin, mutable_data(inv_std) + begin, run->pool);
    } else {
      rms_norm(rows, data(weight->value), eps, end - begin, n, to, mutable_data(inv_std) + begin,
               run->pool);
    }
  }

  // The rows of the norm; the sum is written with them.
  Rows first_time(const at::Tensor& x, const at::Tensor& delta) {
    const std::int64_t rows = x.size(0), n = x.size(1);
    inv_std = run->buffers->empty({rows});
    if (bias->value.defined()) mean = run->buffers->empty({rows});
    sum = delta.defined() ? run->buffers->empty({rows, n}) : x.detach();
    return {nullptr, 0,
            [this, n, a = data(x), b = data(delta), to = mutable_data(sum)](
                std::int64_t begin, std::int64_t end, float* buffer) -> const float* {
              if (b != nullptr) {
                add(a + begin * n, b + begin * n, (end - begin) * n, to + begin * n, run->pool);
              }
              norm(begin, end, buffer);
              return buffer;
            }};
  }
  Rows again() {
    return {nullptr, 0,
            [this](std::int64_t begin, std::int64_t end, float* buffer) -> const float* {
              norm(begin, end, buffer);
              return buffer;
            }};
  }

  // Gradient by the sum, from that of the norm and that of the sum's other use.
  at::Tensor backward(const at::Tensor& dnormed, const at::Tensor& residual) {
    const std::int64_t rows = sum.size(0), n = sum.size(1);
    at::Tensor dx = run->buffers->empty({rows, n});
    if (bias->value.defined()) {
      layer_norm_backward(data(sum), data(weight->value), data(mean), data(inv_std), data(dnormed),
                          data(residual), rows, n, mutable_data(dx), mutable_data(weight->grad),
                          mutable_data(bias->grad), run->pool);
    } else {
      rms_norm_backward(data(sum), data(weight->value), data(inv_std), data(dnormed),
                        data(residual), rows, n, mutable_data(dx), mutable_data(weight->grad),
                        run->pool);
    }
    return dx;
  }
};

void add_bias_gradient(const Vector& bias, const at::Tensor& dy, ThreadPool& pool) {
  if (!bias.grad.defined()) return;
  add_rows(data(dy), dy.size(0), dy.size(1), dy.size(1), mutable_data(bias.grad), pool);
}

struct NormLinearState : torch::CustomClassHolder {
  NormedSum normed;
  const Matrix* weight = nullptr;
  const Vector* bias = nullptr;
  bool delta = false;
};

struct NormLinearFunction : Function<NormLinearFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const std::optional<at::Tensor>& delta, Run* run,
                               const NormParameters* norm, const Matrix* weight,
                               const Vector* bias) {
    auto state = c10::make_intrusive<NormLinearState>();
    NormLinearState& s = *state;
    s.normed = NormedSum(run, *norm);
    s.weight = weight;
    s.bias = bias;
    s.delta = delta.has_value();
    const std::int64_t rows = x.size(0), out = weight->packed.out();
    at::Tensor y = run->buffers->empty({rows, out});
    matmul(weight->packed, s.normed.first_time(x, delta.value_or(at::Tensor())), rows,
           data(bias->value), mutable_data(y), out, run->pool);
    at::Tensor sum = s.normed.sum.detach();
    context->saved_data["state"] = c10::IValue::make_capsule(std::move(state));
    return {sum, y};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto& s = static_cast<NormLinearState&>(*context->saved_data["state"].toCapsule());
    Run* run = s.normed.run;
    const at::Tensor residual = gradients[0].defined() ? dense(gradients[0]) : at::Tensor();
    at::Tensor dx = residual;
    if (gradients[1].defined()) {
      const at::Tensor dy = dense(gradients[1]);
      add_bias_gradient(*s.bias, dy, run->pool);
      at::Tensor dnormed = run->buffers->empty({dy.size(0), s.weight->packed.in()});
      matmul_backward(s.weight->transposed, run->batch.units, array(dy), s.normed.again(),
                      mutable_data(s.weight->grad), mutable_data(dnormed), run->pool);
      dx = s.normed.backward(dnormed, residual);
    }
    return {dx,          s.delta ? dx : at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(),
            at::Tensor()};
  }
};

struct GatedMlpState : torch::CustomClassHolder {
  NormedSum normed;
  GatedMlp mlp;
  at::Tensor gate_up;
  bool delta = false;

  // silu(gate) * up.
  Rows active() {
    return {nullptr, 0,
            [this](std::int64_t begin, std::int64_t end, float* buffer) -> const float* {
              const std::int64_t n = gate_up.size(1) / 2;
              silu_mul(data(gate_up) + begin * 2 * n, end - begin, n, buffer, normed.run->pool);
              return buffer;
            }};
  }
};

struct GatedMlpFunction : Function<GatedMlpFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const std::optional<at::Tensor>& delta, Run* run,
                               const NormParameters* norm, const GatedMlp* mlp) {
    auto state = c10::make_intrusive<GatedMlpState>();
    GatedMlpState& s = *state;
    s.normed = NormedSum(run, *norm);
    s.mlp = *mlp;
    s.delta = delta.has_value();
    const std::int64_t rows = x.size(0), both = mlp->gate_up->packed.out();
    s.gate_up = run->buffers->empty({rows, both});
    matmul(mlp->gate_up->packed, s.normed.first_time(x, delta.value_or(at::Tensor())), rows,
           data(mlp->gate_up_bias->value), mutable_data(s.gate_up), both, run->pool);
    at::Tensor y = run->buffers->empty({rows, mlp->down->packed.out()});
    matmul(mlp->down->packed, s.active(), rows, data(mlp->down_bias->value), mutable_data(y),
           y.size(1), run->pool);
    at::Tensor sum = s.normed.sum.detach();
    context->saved_data["state"] = c10::IValue::make_capsule(std::move(state));
    return {sum, y};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto& s = static_cast<GatedMlpState&>(*context->saved_data["state"].toCapsule());
    Run* run = s.normed.run;
    const GatedMlp& mlp = s.mlp;
    const at::Tensor residual = gradients[0].defined() ? dense(gradients[0]) : at::Tensor();
    at::Tensor dx = residual;
    if (gradients[1].defined()) {
      const at::Tensor dy = dense(gradients[1]);
      const std::int64_t rows = dy.size(0), n = mlp.down->packed.in();
      add_bias_gradient(*mlp.down_bias, dy, run->pool);
      at::Tensor dactive = run->buffers->empty({rows, n});
      matmul_backward(mlp.down->transposed, run->batch.units, array(dy), s.active(),
                      mutable_data(mlp.down->grad), mutable_data(dactive), run->pool);
      Rows dgate_up{nullptr, 0,
                    [&, n](std::int64_t begin, std::int64_t end, float* buffer) -> const float* {
                      silu_mul_backward(data(s.gate_up) + begin * 2 * n, data(dactive) + begin * n,
                                        end - begin, n, buffer, run->pool);
                      return buffer;
                    }};
      at::Tensor whole;
      if (mlp.gate_up_bias->grad.defined()) {  // its sum needs all rows
        whole = run->buffers->empty({rows, 2 * n});
        dgate_up.fill(0, rows, mutable_data(whole));
        add_bias_gradient(*mlp.gate_up_bias, whole, run->pool);
        dgate_up = array(whole);
      }
      at::Tensor dnormed = run->buffers->empty({rows, mlp.gate_up->packed.in()});
      matmul_backward(mlp.gate_up->transposed, run->batch.units, dgate_up, s.normed.again(),
                      mutable_data(mlp.gate_up->grad), mutable_data(dnormed), run->pool);
      dx = s.normed.backward(dnormed, residual);
    }
    return {dx, s.delta ? dx : at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> norm_linear(Run& run, const at::Tensor& x,
                                              const at::Tensor& delta, const NormParameters& norm,
                                              const Matrix& weight, const Vector& bias) {
  if (run.composes(x)) {
    const at::Tensor sum = delta.defined() ? x + delta : x;
    return {sum, composed::linear(composed::norm(sum, *norm.weight, *norm.bias, norm.eps), weight,
                                  bias)};
  }
  const variable_list out =
      NormLinearFunction::apply(x, present(delta), &run, &norm, &weight, &bias);
  return {out[0], out[1]};
}

std::pair<at::Tensor, at::Tensor> gated_mlp(Run& run, const at::Tensor& x, const at::Tensor& delta,
                                            const NormParameters& norm, const GatedMlp& mlp) {
  if (run.composes(x)) {
    const auto [sum, up] = norm_linear(run, x, delta, norm, *mlp.gate_up, *mlp.gate_up_bias);
    return {sum, composed::linear(composed::gated_silu(up), *mlp.down, *mlp.down_bias)};
  }
  const variable_list out = GatedMlpFunction::apply(x, present(delta), &run, &norm, &mlp);
  return {out[0], out[1]};
}

}  // namespace weft::nn::autograd
