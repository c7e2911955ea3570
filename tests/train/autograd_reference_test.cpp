// Our backward passes against torch's autograd over the same operators composed of
// at:: functions, in f32.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "weft/nn/autograd/composed.h"
#include "weft/nn/matmul_backward.h"

namespace weft::nn::autograd {
namespace {

class AutogradReference : public testing::Test {
 protected:
  AutogradReference() {
    // A shared prefix of 5 rows with two continuations, then a sequence of 40.
    batch_.segments = {{0, 5, 0, -1}, {5, 12, 5, 0}, {12, 14, 5, 0}, {14, 54, 0, -1}};
    batch_.units = {14, 40};
    for (const Segment& s : batch_.segments) {
      for (std::int64_t i = 0; i < s.end - s.begin; ++i) {
        batch_.positions.push_back(static_cast<std::int32_t>(s.first_position + i));
        batch_.tokens.push_back(static_cast<std::int32_t>((3 * batch_.tokens.size()) % 19));
      }
    }
    for (std::int64_t row = 6; row < 54; row += 2) {
      batch_.target_rows.push_back(row);
      batch_.target_tokens.push_back(static_cast<std::int32_t>(row % 19));
    }
    batch_.target_units = {4, 20};
    at::manual_seed(1);
  }

  at::Tensor input(std::int64_t rows, std::int64_t columns) {
    return at::randn({rows, columns}).set_requires_grad(true);
  }
  Vector vector(std::int64_t n, double around) {
    return {(at::randn({n}) * 0.3 + around).set_requires_grad(true), at::zeros({n})};
  }
  Matrix matrix(std::int64_t out, std::int64_t in) {
    Matrix m;
    m.value = (at::randn({out, in}) * 0.3).set_requires_grad(true);
    m.grad = at::zeros({out, in});
    const std::vector<TensorView> views{
        {reinterpret_cast<const std::byte*>(m.value.const_data_ptr<float>()),
         DType::kF32,
         {out, in}}};
    m.packed = *pack_matrix(views, Compute::kF32, pool_);
    m.transposed = *pack_transposed(views, Compute::kF32, pool_);
    return m;
  }
  // Both graphs get the same gradient at their outputs; x and the parameters must end
  // up with the same gradients.
  void expect_same(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& reference,
                   const std::vector<at::Tensor>& inputs,
                   const std::vector<std::pair<at::Tensor, at::Tensor>>& parameters) {
    std::vector<at::Tensor> gradients;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(at::allclose(ours[i], reference[i], 1e-4, 1e-4)) << "output " << i;
      gradients.push_back(at::randn_like(reference[i]));
    }
    torch::autograd::backward(ours, gradients);
    std::vector<at::Tensor> mine;
    for (const at::Tensor& x : inputs) {
      mine.push_back(x.grad().clone());
      x.mutable_grad() = at::Tensor();
    }
    torch::autograd::backward(reference, gradients);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_TRUE(at::allclose(mine[i], inputs[i].grad(), 1e-3, 1e-4))
          << "input " << i << " differs by " << (mine[i] - inputs[i].grad()).abs().max();
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto& [value, grad] = parameters[i];
      EXPECT_TRUE(at::allclose(grad, value.grad(), 1e-3, 1e-4))
          << "parameter " << i << " differs by " << (grad - value.grad()).abs().max();
    }
  }

  ThreadPool pool_{2};
  PackedBatch batch_;
  autograd::Run run_{.pool = pool_, .buffers = std::make_shared<BufferPool>(), .batch = batch_};
};

TEST_F(AutogradReference, Linear) {
  const at::Tensor x = input(54, 24);
  Matrix w = matrix(37, 24);
  Vector b = vector(37, 0);
  expect_same({linear(run_, x, w, b)}, {composed::linear(x, w, b)}, {x},
              {{w.value, w.grad}, {b.value, b.grad}});
}

TEST_F(AutogradReference, RmsNormOfASum) {
  const at::Tensor x = input(54, 40), delta = input(54, 40);
  Vector w = vector(40, 1), none;
  const auto [sum, y] = add_norm(run_, x, delta, w, none, 1e-5F);
  const at::Tensor reference = x + delta;
  expect_same({sum, y}, {reference, composed::norm(reference, w, none, 1e-5F)}, {x, delta},
              {{w.value, w.grad}});
}

TEST_F(AutogradReference, LayerNormOfASum) {
  const at::Tensor x = input(54, 37), delta = input(54, 37);
  Vector w = vector(37, 1), b = vector(37, 0);
  const auto [sum, y] = add_norm(run_, x, delta, w, b, 1e-5F);
  const at::Tensor reference = x + delta;
  expect_same({sum, y}, {reference, composed::norm(reference, w, b, 1e-5F)}, {x, delta},
              {{w.value, w.grad}, {b.value, b.grad}});
}

TEST_F(AutogradReference, Selection) {
  const at::Tensor x = input(54, 10), delta = input(54, 10);
  expect_same({add_select(run_, x, delta)}, {composed::select(batch_, x + delta)}, {x, delta}, {});
}

TEST_F(AutogradReference, NormAndLinear) {
  for (const bool layer_norm : {false, true}) {
    const at::Tensor x = input(54, 40), delta = input(54, 40);
    Vector norm = vector(40, 1), norm_bias, bias = vector(33, 0);
    if (layer_norm) norm_bias = vector(40, 0);
    Matrix w = matrix(33, 40);
    const auto [sum, y] = norm_linear(run_, x, delta, {&norm, &norm_bias, 1e-5F}, w, bias);
    const at::Tensor reference = x + delta;
    std::vector<std::pair<at::Tensor, at::Tensor>> parameters = {
        {norm.value, norm.grad}, {w.value, w.grad}, {bias.value, bias.grad}};
    if (layer_norm) parameters.emplace_back(norm_bias.value, norm_bias.grad);
    expect_same(
        {sum, y},
        {reference, composed::linear(composed::norm(reference, norm, norm_bias, 1e-5F), w, bias)},
        {x, delta}, parameters);
  }
}

TEST_F(AutogradReference, GatedMlpWithAndWithoutBiases) {
  for (const bool biased : {false, true}) {
    const at::Tensor x = input(54, 40), delta = input(54, 40);
    Vector norm = vector(40, 1), none, up_bias, down_bias;
    Matrix gate_up = matrix(2 * 70, 40), down = matrix(40, 70);
    std::vector<std::pair<at::Tensor, at::Tensor>> parameters = {
        {norm.value, norm.grad}, {gate_up.value, gate_up.grad}, {down.value, down.grad}};
    if (biased) {
      up_bias = vector(2 * 70, 0);
      down_bias = vector(40, 0);
      parameters.emplace_back(up_bias.value, up_bias.grad);
      parameters.emplace_back(down_bias.value, down_bias.grad);
    }
    const auto [sum, y] =
        gated_mlp(run_, x, delta, {&norm, &none, 1e-5F}, {&gate_up, &down, &up_bias, &down_bias});
    const at::Tensor reference = x + delta;
    const at::Tensor up =
        composed::linear(composed::norm(reference, norm, none, 1e-5F), gate_up, up_bias);
    expect_same({sum, y}, {reference, composed::linear(composed::gated_silu(up), down, down_bias)},
                {x, delta}, parameters);
  }
}

TEST_F(AutogradReference, Activations) {
  for (const bool tanh_form : {true, false}) {
    const at::Tensor y = input(54, 70);
    expect_same({gelu(run_, y, tanh_form)}, {composed::gelu(y, tanh_form)}, {y}, {});
  }
}

TEST_F(AutogradReference, AttentionWithPrefixesWindowsRotationAndHeadNorms) {
  for (const std::int64_t head_dim : {8, 10, 64}) {
    for (const std::int64_t window : {0, 6}) {
      for (const bool head_norm : {false, true}) {
        model::ModelConfig model_config;
        model_config.head_dim = head_dim;
        const RopeTable rope = make_rope_table(model_config, 64);
        SegmentKv kv(batch_, 2, head_dim);
        AttentionConfig config;
        config.shape = {
            .heads = 4, .kv_heads = 2, .head_dim = head_dim, .scale = 0.4F, .window = window};
        config.rope = &rope;
        config.kv = &kv;
        config.norm_eps = 1e-5F;
        Vector q_norm, k_norm;
        std::vector<std::pair<at::Tensor, at::Tensor>> parameters;
        if (head_norm) {
          q_norm = vector(head_dim, 1);
          k_norm = vector(head_dim, 1);
          parameters = {{q_norm.value, q_norm.grad}, {k_norm.value, k_norm.grad}};
        }
        const at::Tensor qkv = input(54, 8 * head_dim);
        const at::Tensor reference = composed::attention(batch_, qkv, q_norm, k_norm, config);
        // Ours consumes its input: give it a copy inside the graph.
        const at::Tensor ours = attention(run_, qkv * 1.0, q_norm, k_norm, config);
        SCOPED_TRACE(testing::Message() << head_dim << " " << window << " " << head_norm);
        expect_same({ours}, {reference}, {qkv}, parameters);
      }
    }
  }
}

TEST_F(AutogradReference, LogProbabilitiesAndEntropiesWholeAndInChunks) {
  for (const std::int64_t rows : {1000, 1}) {
    const at::Tensor states = input(24, 12);
    Matrix head = matrix(19, 12);
    const LogProbs ours = log_probs(run_, states, head, 0.8F, true, rows);
    const LogProbs reference = composed::log_probs(batch_, states, head, 0.8F, true);
    expect_same({ours.logprob, ours.entropy}, {reference.logprob, reference.entropy}, {states},
                {{head.value, head.grad}});
  }
}

TEST_F(AutogradReference, Values) {
  const at::Tensor states = input(24, 37);
  Vector w = vector(37, 0), b = vector(1, 0);
  expect_same({value_head(run_, states, w, b)}, {composed::value_head(states, w, b)}, {states},
              {{w.value, w.grad}, {b.value, b.grad}});
}

}  // namespace
}  // namespace weft::nn::autograd
