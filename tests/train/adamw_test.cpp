#include "weft/train/adamw.h"

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <limits>

#include "weft/base/rng.h"
#include "weft/nn/isa.h"

namespace weft::train {
namespace {

TEST(AdamW, FollowsTorchOptim) {
  constexpr std::int64_t kCount = 1000, kMatrix = 700;
  ThreadPool pool(2);
  const AdamWOptions options{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  Rng rng(1, RngUse::kTest);
  std::vector<float> w(kCount), g(kCount), m(kCount), v(kCount);
  for (float& x : w) x = rng.next_normal();
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    return torch::tensor(std::vector<float>(w.begin() + begin, w.begin() + end))
        .set_requires_grad(true);
  };
  const at::Tensor matrix = part(0, kMatrix), bias = part(kMatrix, kCount);
  const auto torch_options = [&](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(
        torch::optim::AdamWOptions(1e-2).betas({0.9, 0.95}).eps(1e-8).weight_decay(decay));
  };
  torch::optim::AdamW reference({torch::optim::OptimizerParamGroup({matrix}, torch_options(0.1)),
                                 torch::optim::OptimizerParamGroup({bias}, torch_options(0.0))});
  const std::vector<ParameterRange> ranges{{0, kMatrix, true}, {kMatrix, kCount, false}};
  for (std::int64_t step = 1; step <= 20; ++step) {
    for (float& x : g) x = rng.next_normal() * 0.1F;
    matrix.mutable_grad() = torch::tensor(std::vector<float>(g.begin(), g.begin() + kMatrix));
    bias.mutable_grad() = torch::tensor(std::vector<float>(g.begin() + kMatrix, g.end()));
    reference.step();
    adamw_step(options, step, 1e-2, 1.0, ranges, w, g, m, v, pool);
    for (std::int64_t i = 0; i < kCount; ++i) {
      const at::Tensor& tensor = i < kMatrix ? matrix : bias;
      const float expected = tensor.const_data_ptr<float>()[i < kMatrix ? i : i - kMatrix];
      ASSERT_NEAR(w[static_cast<std::size_t>(i)], expected, 2e-6 * (1 + std::abs(expected)))
          << "step " << step << " element " << i;
      ASSERT_EQ(g[static_cast<std::size_t>(i)], 0.0F);
    }
  }
}

TEST(AdamW, ThreadsAndRangesChangeNoBit) {
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    Rng rng(2, RngUse::kTest);
    std::vector<float> w(100003), g(w.size()), m(w.size()), v(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = g[i] = rng.next_normal();
    std::vector<ParameterRange> ranges{{0, 100003, true}};
    if (threads == 3) ranges = {{0, 17, true}, {17, 50001, true}, {50001, 100003, true}};
    adamw_step({}, 3, 1e-3, 0.5, ranges, w, g, m, v, pool);
    w.insert(w.end(), v.begin(), v.end());
    results.push_back(w);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(GradientNorm, IsExactInDoubleAndSeesWhatIsNotFinite) {
  ThreadPool one(1), three(3);
  std::vector<float> g(50000);
  Rng rng(3, RngUse::kTest);
  long double exact = 0;
  for (float& x : g) {
    x = rng.next_normal();
    exact += static_cast<long double>(x) * x;
  }
  EXPECT_NEAR(gradient_norm(g, one), std::sqrt(static_cast<double>(exact)), 1e-9);
  EXPECT_EQ(gradient_norm(g, one), gradient_norm(g, three));
  g[49999] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(std::isfinite(gradient_norm(g, one)));
  g[49999] = NAN;
  EXPECT_FALSE(std::isfinite(gradient_norm(g, one)));
}

}  // namespace
}  // namespace weft::train
