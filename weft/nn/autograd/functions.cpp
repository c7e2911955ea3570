#include "weft/nn/autograd/functions.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "weft/base/result.h"
#include "weft/nn/autograd/composed.h"
#include "weft/nn/autograd/tensor_access.h"
#include "weft/nn/matmul_backward.h"
#include "weft/nn/ops_backward.h"

namespace weft::nn::autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Pointers travel through the context as integers; Run and the parameters outlive
// the graph.
void keep(AutogradContext* context, const char* key, const void* pointer) {
  context->saved_data[key] = reinterpret_cast<std::int64_t>(pointer);
}
template <class T>
T* kept(AutogradContext* context, const char* key) {
  return reinterpret_cast<T*>(context->saved_data[key].toInt());
}

struct EmbeddingFunction : Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& /*anchor*/, Run* run,
                            const Matrix* table, const Vector* positions,
                            EmbeddingGradient* gradient) {
    keep(context, "run", run);
    keep(context, "positions", positions);
    keep(context, "gradient", gradient);
    const std::int64_t hidden = table->packed.in();
    at::Tensor x = run->buffers->empty({run->batch.rows(), hidden});
    float* out = mutable_data(x);
    const float* learned = data(positions->value);
    run->pool.parallel_for(run->batch.rows(), 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto row = static_cast<std::size_t>(i);
        matrix_row(table->packed, run->batch.tokens[row], out + i * hidden);
        if (learned == nullptr) continue;
        const float* p = learned + run->batch.positions[row] * hidden;
        for (std::int64_t c = 0; c < hidden; ++c) out[i * hidden + c] += p[c];
      }
    });
    return x;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto* run = kept<Run>(context, "run");
    const auto* positions = kept<Vector>(context, "positions");
    auto* gradient = kept<EmbeddingGradient>(context, "gradient");
    const at::Tensor dx = dense(gradients[0]);
    const std::int64_t hidden = dx.size(1);
    float* learned = mutable_data(positions->grad);
    for (std::int64_t i = 0; i < dx.size(0); ++i) {
      const float* row = data(dx) + i * hidden;
      if (gradient != nullptr) {
        gradient->add(run->batch.tokens[static_cast<std::size_t>(i)], row, hidden);
      }
      if (learned != nullptr) {
        float* p = learned + run->batch.positions[static_cast<std::size_t>(i)] * hidden;
        for (std::int64_t c = 0; c < hidden; ++c) p[c] += row[c];
      }
    }
    return {at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct LinearFunction : Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Run* run,
                            const Matrix* weight, const Vector* bias) {
    context->save_for_backward({x});
    keep(context, "run", run);
    keep(context, "weight", weight);
    keep(context, "bias", bias);
    at::Tensor y = run->buffers->empty({x.size(0), weight->packed.out()});
    matmul(weight->packed, data(x), x.size(0), x.size(1), data(bias->value), mutable_data(y),
           y.size(1), run->pool);
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto* run = kept<Run>(context, "run");
    const auto* weight = kept<Matrix>(context, "weight");
    const auto* bias = kept<Vector>(context, "bias");
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor dy = dense(gradients[0]);
    const std::int64_t rows = x.size(0), in = x.size(1), out = dy.size(1);
    if (bias->grad.defined()) {
      add_rows(data(dy), rows, out, out, mutable_data(bias->grad), run->pool);
    }
    at::Tensor dx = run->buffers->empty({rows, in});
    matmul_backward(weight->transposed, run->batch.units, {data(dy), out, nullptr},
                    {data(x), in, nullptr}, mutable_data(weight->grad), mutable_data(dx),
                    run->pool);
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct NormFunction : Function<NormFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const std::optional<at::Tensor>& delta, Run* run,
                               const Vector* weight, const Vector* bias, double eps) {
    keep(context, "run", run);
    keep(context, "weight", weight);
    keep(context, "bias", bias);
    const std::int64_t rows = x.size(0), n = x.size(1);
    at::Tensor sum = x;
    if (delta) {
      sum = run->buffers->empty({rows, n});
      add(data(x), data(*delta), rows * n, mutable_data(sum), run->pool);
    }
    at::Tensor y = run->buffers->empty({rows, n}), mean;
    at::Tensor inv_std = run->buffers->empty({rows});
    if (bias->value.defined()) {
      mean = run->buffers->empty({rows});
      layer_norm(data(sum), data(weight->value), data(bias->value), static_cast<float>(eps), rows,
                 n, mutable_data(y), mutable_data(mean), mutable_data(inv_std), run->pool);
    } else {
      rms_norm(data(sum), data(weight->value), static_cast<float>(eps), rows, n, mutable_data(y),
               mutable_data(inv_std), run->pool);
    }
    // Not through save_for_backward: the graph would hold its own output `sum`.
    context->saved_data["sum"] = sum.detach();
    context->saved_data["mean"] = mean.defined() ? c10::IValue(mean) : c10::IValue();
    context->saved_data["inv_std"] = inv_std;
    context->saved_data["delta"] = delta.has_value();
    return {sum, y};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto* run = kept<Run>(context, "run");
    const auto* weight = kept<Vector>(context, "weight");
    const auto* bias = kept<Vector>(context, "bias");
    const at::Tensor sum = context->saved_data["sum"].toTensor();
    const at::Tensor inv_std = context->saved_data["inv_std"].toTensor();
    const std::int64_t rows = sum.size(0), n = sum.size(1);
    const at::Tensor residual = gradients[0].defined() ? dense(gradients[0]) : at::Tensor();
    at::Tensor dx = residual;
    if (gradients[1].defined()) {
      const at::Tensor dy = dense(gradients[1]);
      dx = run->buffers->empty({rows, n});
      if (bias->value.defined()) {
        layer_norm_backward(data(sum), data(weight->value),
                            data(context->saved_data["mean"].toTensor()), data(inv_std), data(dy),
                            data(residual), rows, n, mutable_data(dx), mutable_data(weight->grad),
                            mutable_data(bias->grad), run->pool);
      } else {
        rms_norm_backward(data(sum), data(weight->value), data(inv_std), data(dy), data(residual),
                          rows, n, mutable_data(dx), mutable_data(weight->grad), run->pool);
      }
    }
    const bool has_delta = context->saved_data["delta"].toBool();
    return {dx,          has_delta ? dx : at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(),
            at::Tensor()};
  }
};

struct SelectFunction : Function<SelectFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const std::optional<at::Tensor>& delta, Run* run) {
    keep(context, "run", run);
    context->saved_data["delta"] = delta.has_value();
    const std::int64_t n = x.size(1);
    at::Tensor y = run->buffers->empty({run->batch.targets(), n});
    for (std::int64_t i = 0; i < run->batch.targets(); ++i) {
      const std::int64_t at = run->batch.target_rows[static_cast<std::size_t>(i)] * n;
      const float *a = data(x) + at, *b = delta ? data(*delta) + at : nullptr;
      float* out = mutable_data(y) + i * n;
      for (std::int64_t c = 0; c < n; ++c) out[c] = b != nullptr ? a[c] + b[c] : a[c];
    }
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto* run = kept<Run>(context, "run");
    const at::Tensor dy = dense(gradients[0]);
    const std::int64_t n = dy.size(1);
    at::Tensor dx = run->buffers->empty({run->batch.rows(), n});
    std::fill_n(mutable_data(dx), dx.numel(), 0.0F);
    for (std::int64_t i = 0; i < run->batch.targets(); ++i) {
      std::copy_n(data(dy) + i * n, n,
                  mutable_data(dx) + run->batch.target_rows[static_cast<std::size_t>(i)] * n);
    }
    return {dx, context->saved_data["delta"].toBool() ? dx : at::Tensor(), at::Tensor()};
  }
};

struct GeluFunction : Function<GeluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Run* run,
                            bool tanh_form) {
    context->save_for_backward({x});
    keep(context, "run", run);
    context->saved_data["tanh"] = tanh_form;
    at::Tensor y = run->buffers->empty({x.size(0), x.size(1)});
    nn::gelu(data(x), x.numel(), tanh_form, mutable_data(y), run->pool);
    return y;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto* run = kept<Run>(context, "run");
    const at::Tensor x = context->get_saved_variables()[0], dy = dense(gradients[0]);
    at::Tensor dx = run->buffers->empty({x.size(0), x.size(1)});
    gelu_backward(data(x), data(dy), x.numel(), context->saved_data["tanh"].toBool(),
                  mutable_data(dx), run->pool);
    return {dx, at::Tensor(), at::Tensor()};
  }
};

struct ValueFunction : Function<ValueFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& states, Run* run,
                            const Vector* weight, const Vector* bias) {
    context->save_for_backward({states});
    keep(context, "run", run);
    keep(context, "weight", weight);
    keep(context, "bias", bias);
    const std::int64_t n = states.size(1);
    at::Tensor y = run->buffers->empty({states.size(0)});
    for (std::int64_t i = 0; i < states.size(0); ++i) {
      const float *x = data(states) + i * n, *w = data(weight->value);
      float lanes[16] = {};
      for (std::int64_t c = 0; c < n; ++c) lanes[c % 16] += x[c] * w[c];
      float total = *data(bias->value);
      for (const float lane : lanes) total += lane;
      mutable_data(y)[i] = total;
    }
    return y;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto* run = kept<Run>(context, "run");
    const auto* weight = kept<Vector>(context, "weight");
    const auto* bias = kept<Vector>(context, "bias");
    const at::Tensor states = context->get_saved_variables()[0], dy = dense(gradients[0]);
    const std::int64_t n = states.size(1);
    at::Tensor dx = run->buffers->empty({states.size(0), n});
    float *dweight = mutable_data(weight->grad), *dbias = mutable_data(bias->grad);
    for (std::int64_t i = 0; i < states.size(0); ++i) {
      const float g = data(dy)[i];
      const float* x = data(states) + i * n;
      for (std::int64_t c = 0; c < n; ++c) {
        mutable_data(dx)[i * n + c] = g * data(weight->value)[c];
        if (dweight != nullptr) dweight[c] += g * x[c];
      }
      if (dbias != nullptr) *dbias += g;
    }
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

void EmbeddingGradient::add(std::int32_t token, const float* gradient, std::int64_t hidden) {
  const auto [found, fresh] =
      row_of_token.try_emplace(token, static_cast<std::int64_t>(tokens.size()));
  if (fresh) {
    tokens.push_back(token);
    rows.resize(rows.size() + static_cast<std::size_t>(hidden), 0.0F);
  }
  float* sum = rows.data() + found->second * hidden;
  for (std::int64_t c = 0; c < hidden; ++c) sum[c] += gradient[c];
}

void EmbeddingGradient::flush(float* grad, std::int64_t hidden) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    float* row = grad + tokens[i] * hidden;
    const float* sum = rows.data() + static_cast<std::int64_t>(i) * hidden;
    for (std::int64_t c = 0; c < hidden; ++c) row[c] += sum[c];
  }
  row_of_token.clear();
  tokens.clear();
  rows.clear();
}

at::Tensor embedding(Run& run, const at::Tensor& anchor, const Matrix& table,
                     const Vector& positions, EmbeddingGradient* gradient) {
  if (run.composes(anchor)) {
    return composed::embedding(run.batch, table, positions, table.value.size(1));
  }
  return EmbeddingFunction::apply(anchor, &run, &table, &positions, gradient);
}

at::Tensor linear(Run& run, const at::Tensor& x, const Matrix& weight, const Vector& bias) {
  if (run.composes(x)) return composed::linear(x, weight, bias);
  return LinearFunction::apply(x, &run, &weight, &bias);
}

std::pair<at::Tensor, at::Tensor> add_norm(Run& run, const at::Tensor& x, const at::Tensor& delta,
                                           const Vector& weight, const Vector& bias, float eps) {
  if (run.composes(x)) {
    const at::Tensor sum = delta.defined() ? x + delta : x;
    return {sum, composed::norm(sum, weight, bias, eps)};
  }
  const variable_list out =
      NormFunction::apply(x, present(delta), &run, &weight, &bias, static_cast<double>(eps));
  return {out[0], out[1]};
}

at::Tensor add_select(Run& run, const at::Tensor& x, const at::Tensor& delta) {
  if (run.composes(x)) return composed::select(run.batch, delta.defined() ? x + delta : x);
  return SelectFunction::apply(x, present(delta), &run);
}

at::Tensor gelu(Run& run, const at::Tensor& x, bool tanh_form) {
  if (run.composes(x)) return composed::gelu(x, tanh_form);
  return GeluFunction::apply(x, &run, tanh_form);
}

at::Tensor value_head(Run& run, const at::Tensor& states, const Vector& weight,
                      const Vector& bias) {
  if (run.composes(states)) return composed::value_head(states, weight, bias);
  return ValueFunction::apply(states, &run, &weight, &bias);
}

}  // namespace weft::nn::autograd
