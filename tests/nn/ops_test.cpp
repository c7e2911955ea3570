#include "weft/nn/ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/nn/levels.h"

namespace weft::nn {
namespace {

class OperatorsAtLevel : public AtLevel {};

// Distance in units of the last place of the f32 nearest to `exact`.
double ulps(float value, double exact) {
  const auto nearest = static_cast<float>(exact);
  if (std::isinf(nearest) || nearest == value) return nearest == value ? 0.0 : 1e9;
  int exponent = 0;
  std::frexp(exact, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent, -125) - 24);
  return std::fabs(value - exact) / unit;
}

TEST(Transcendentals, ExpIsWithinTwoUlps) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> wide(-103.0F, 88.7F), narrow(-1.0F, 1.0F);
  double worst = 0.0;
  for (int i = 0; i < 400000; ++i) {
    const float x = i % 2 == 0 ? wide(random) : narrow(random);
    worst = std::max(worst, ulps(exp_f32(x), std::exp(double{x})));
  }
  EXPECT_LT(worst, 2.0);
  RecordProperty("worst_ulps", std::to_string(worst));
}

TEST(Transcendentals, LogIsWithinTwoUlps) {
  std::mt19937 random(2);
  double worst = 0.0;
  for (int i = 0; i < 400000; ++i) {
    float x = std::bit_cast<float>(static_cast<std::uint32_t>(random() % 0x7f800000U));
    if (i % 2 == 0) x = std::uniform_real_distribution<float>(0.5F, 2.0F)(random);
    if (x == 0.0F) continue;
    worst = std::max(worst, ulps(log_f32(x), std::log(double{x})));
  }
  EXPECT_LT(worst, 2.0);
}

TEST(Transcendentals, EdgesOfExpAndLog) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_f32(0.0F), 1.0F);
  EXPECT_EQ(exp_f32(-inf), 0.0F);
  EXPECT_EQ(exp_f32(-104.0F), 0.0F);
  EXPECT_EQ(exp_f32(inf), inf);
  EXPECT_EQ(exp_f32(89.0F), inf);
  EXPECT_GT(exp_f32(-103.0F), 0.0F);
  EXPECT_TRUE(std::isnan(exp_f32(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(log_f32(1.0F), 0.0F);
  EXPECT_EQ(log_f32(0.0F), -inf);
  EXPECT_EQ(log_f32(inf), inf);
  EXPECT_TRUE(std::isnan(log_f32(-1.0F)));
  EXPECT_TRUE(std::isnan(log_f32(std::numeric_limits<float>::quiet_NaN())));
}

TEST_P(OperatorsAtLevel, ExpOfManyIsExpOfOne) {
  std::mt19937 random(3);
  std::vector<float> x(100003), y(x.size()), expected;
  for (float& v : x) v = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  for (std::size_t i = 0; i < x.size(); i += 2) {
    x[i] = std::uniform_real_distribution<float>(-110.0F, 95.0F)(random);
  }
  exp_f32(x.data(), static_cast<std::int64_t>(x.size()), y.data());
  for (float v : x) expected.push_back(exp_f32(v));
  EXPECT_SAME_BITS(y, expected);
}

// All row-wise operators on one random input; levels and threads must agree.
std::vector<float> all_operators(std::int64_t rows, std::int64_t n, ThreadPool& pool) {
  std::mt19937 random(static_cast<unsigned>(n));
  const auto x = random_floats(random, rows * n, 2.0F),
             gate_up = random_floats(random, 2 * rows * n);
  const auto weight = random_floats(random, n), bias = random_floats(random, n);
  std::vector<float> all;
  std::vector<float> y(static_cast<std::size_t>(rows * n)), a(static_cast<std::size_t>(rows)),
      b = a;
  const auto keep = [&](const std::vector<float>& v) { all.insert(all.end(), v.begin(), v.end()); };
  rms_norm(x.data(), weight.data(), 1e-5F, rows, n, y.data(), a.data(), pool);
  keep(y), keep(a);
  layer_norm(x.data(), weight.data(), bias.data(), 1e-5F, rows, n, y.data(), a.data(), b.data(),
             pool);
  keep(y), keep(a), keep(b);
  silu_mul(gate_up.data(), rows, n, y.data(), pool);
  keep(y);
  for (bool tanh_form : {false, true}) {
    gelu(x.data(), rows * n, tanh_form, y.data(), pool);
    keep(y);
  }
  log_sum_exp(x.data(), rows, n, 0.7F, a.data(), b.data(), pool);
  keep(a), keep(b);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t first = 0;
    const float peak = largest_logit(x.data() + row * n, n, 0.7F, &first);
    std::vector<float> weights(static_cast<std::size_t>(n));
    std::vector<double> running(static_cast<std::size_t>((n + kSoftmaxBlock - 1) / kSoftmaxBlock));
    const float sum =
        softmax_weights(x.data() + row * n, n, 0.7F, peak, 0.01F, weights.data(), running.data());
    keep(weights), keep({peak, static_cast<float>(first), sum});
    for (double s : running) keep({static_cast<float>(s)});
  }
  return all;
}

TEST_P(OperatorsAtLevel, OperatorsGiveTheScalarBitsWhateverTheThreads) {
  ThreadPool one(1), two(2);
  for (std::int64_t n : {1, 15, 16, 17, 64, 576, 1000}) {
    const Isa level = cpu_isa();
    const auto y = all_operators(37, n, one), z = all_operators(37, n, two);
    ASSERT_TRUE(set_isa(Isa::kScalar));
    const auto expected = all_operators(37, n, one);
    ASSERT_TRUE(set_isa(level));
    EXPECT_SAME_BITS(y, expected);
    EXPECT_SAME_BITS(z, expected);
  }
}

TEST(Ops, AreNearTheDoubleResults) {
  ThreadPool pool(2);
  std::mt19937 random(5);
  const std::int64_t n = 777;
  const auto x = random_floats(random, n, 3.0F), weight = random_floats(random, n);
  const auto bias = random_floats(random, n), gate_up = random_floats(random, 2 * n, 3.0F);
  double squares = 0.0, mean = 0.0, variance = 0.0, top = -1e30, sum = 0.0;
  for (float v : x) squares += double{v} * v, mean += v, top = std::max(top, double{v});
  mean /= n;
  for (float v : x) variance += (v - mean) * (v - mean), sum += std::exp(v / 0.5 - top / 0.5);
  std::vector<float> y(n);
  float inverse = 0.0F, average = 0.0F, largest = 0.0F, lse = 0.0F;
  rms_norm(x.data(), weight.data(), 1e-5F, 1, n, y.data(), &inverse, pool);
  for (int i = 0; i < n; ++i) {
    EXPECT_NEAR(y[i], x[i] / std::sqrt(squares / n + 1e-5) * weight[i], 4e-6);
  }
  layer_norm(x.data(), weight.data(), bias.data(), 1e-5F, 1, n, y.data(), &average, &inverse, pool);
  for (int i = 0; i < n; ++i) {
    EXPECT_NEAR(y[i], (x[i] - mean) / std::sqrt(variance / n + 1e-5) * weight[i] + bias[i], 8e-6);
  }
  silu_mul(gate_up.data(), 1, n, y.data(), pool);
  for (int i = 0; i < n; ++i) {
    const double g = gate_up[i];
    EXPECT_NEAR(y[i], g / (1 + std::exp(-g)) * gate_up[n + i], 2e-5);
  }
  gelu(x.data(), n, false, y.data(), pool);
  for (int i = 0; i < n; ++i)
    EXPECT_NEAR(y[i], 0.5 * x[i] * std::erfc(-x[i] / std::sqrt(2.0)), 2e-6);
  gelu(x.data(), n, true, y.data(), pool);
  for (int i = 0; i < n; ++i) {
    const double u = std::sqrt(2 / M_PI) * (x[i] + 0.044715 * std::pow(x[i], 3));
    EXPECT_NEAR(y[i], 0.5 * x[i] * (1 + std::tanh(u)), 3e-6);
  }
  log_sum_exp(x.data(), 1, n, 0.5F, &largest, &lse, pool);
  EXPECT_NEAR(largest, top / 0.5, 1e-5);
  EXPECT_NEAR(lse, top / 0.5 + std::log(sum), 1e-5);
  EXPECT_NEAR(log_prob(x.data(), n, 0.5F, 3), x[3] / 0.5 - (top / 0.5 + std::log(sum)), 2e-5);
}

// What sampling and log_sum_exp share: one sum, and NaNs that count for nothing.
TEST(Ops, SoftmaxWeightsSumToTheLogSumExp) {
  ThreadPool pool(1);
  std::mt19937 random(6);
  for (std::int64_t n : {1, 17, 256, 300, 1000}) {
    auto x = random_floats(random, n, 5.0F);
    const float temperature = 0.8F, inverse = 1.0F / temperature;
    float top = 0.0F, lse = 0.0F;
    log_sum_exp(x.data(), 1, n, temperature, &top, &lse, pool);
    std::int64_t first = -1;
    const float peak = largest_logit(x.data(), n, inverse, &first);
    EXPECT_EQ(peak, top);
    EXPECT_EQ(first, std::ranges::max_element(x) - x.begin());
    std::vector<float> weights(static_cast<std::size_t>(n));
    std::vector<double> running(static_cast<std::size_t>((n + kSoftmaxBlock - 1) / kSoftmaxBlock));
    const float sum =
        softmax_weights(x.data(), n, inverse, peak, 0.25F, weights.data(), running.data());
    EXPECT_EQ(top + log_f32(sum), lse);
    double total = 0.0;
    for (std::int64_t i = 0; i < n; ++i) {
      const float e = exp_f32(x[i] * inverse - peak);
      EXPECT_EQ(weights[i], e >= 0.25F ? e : 0.0F);
      total += double{weights[i]};
    }
    EXPECT_NEAR(running.back(), total, 1e-5 * total);
    x[0] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(largest_logit(x.data(), n, inverse, &first) > -1e30F, n > 1);
    softmax_weights(x.data(), n, inverse, peak, 0.0F, weights.data(), running.data());
    EXPECT_EQ(weights[0], 0.0F);
  }
}

model::ModelConfig rope_config(std::int64_t head_dim) {
  model::ModelConfig config;
  config.head_dim = head_dim;
  return config;
}

TEST_P(OperatorsAtLevel, RopeRotatesByTheAngleAndBack) {
  ThreadPool pool(2);
  for (std::int64_t head_dim : {8, 34, 64, 128}) {
    auto config = rope_config(head_dim);
    config.rope.rotary_dim = head_dim == 64 ? 32 : 0;
    const RopeTable table = make_rope_table(config, 50);
    EXPECT_EQ(table.positions(), 50);
    std::mt19937 random(1);
    const std::int64_t rows = 7, heads = 3, half = table.rotary_dim / 2;
    const auto x = random_floats(random, rows * heads * head_dim);
    const std::vector<std::int32_t> positions{0, 3, 49, 1, 1, 20, 7};
    auto y = x;
    rope(table, positions.data(), rows, heads, head_dim, y.data(), heads * head_dim, false, pool);
    for (std::int64_t i = 0; i < rows * heads; ++i) {
      for (std::int64_t j = 0; j < head_dim; ++j) {
        double expected = x[i * head_dim + j];
        if (j < 2 * half) {
          const std::int64_t pair = j % half;
          const double angle =
              positions[i / heads] * std::pow(10000.0, -2.0 * pair / table.rotary_dim);
          const double a = x[i * head_dim + pair], b = x[i * head_dim + half + pair];
          expected = j < half ? a * std::cos(angle) - b * std::sin(angle)
                              : b * std::cos(angle) + a * std::sin(angle);
        }
        ASSERT_NEAR(y[i * head_dim + j], expected, 1e-6) << i << " " << j;
      }
    }
    rope(table, positions.data(), rows, heads, head_dim, y.data(), heads * head_dim, true, pool);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i], 1e-6);
  }
}

// The angle of a pair at position 1, in double, from the table.
double frequency(const model::ModelConfig& config, std::int64_t pair, std::int64_t positions = 2) {
  const RopeTable t = make_rope_table(config, positions);
  const std::int64_t at = t.rotary_dim / 2 + pair;
  return std::atan2(t.sin[at], t.cos[at]);
}

TEST(Rope, ScalingsFollowTheirDefinitions) {
  using model::RopeScaling;
  auto config = rope_config(64);
  config.rope.factor = 4.0;
  config.rope.original_max_position = 1024;
  const auto plain = [](std::int64_t pair, double theta = 10000.0) {
    return std::pow(theta, -2.0 * pair / 64);
  };
  config.rope.scaling = RopeScaling::kLinear;
  EXPECT_NEAR(frequency(config, 5), plain(5) / 4, 1e-7);
  config.rope.scaling = RopeScaling::kDynamic;
  EXPECT_NEAR(frequency(config, 5), plain(5), 1e-7);  // within the trained length
  const double theta = 10000.0 * std::pow(4.0 * 2048 / 1024 - 3.0, 64.0 / 62.0);
  EXPECT_NEAR(frequency(config, 5, 2048), plain(5, theta), 1e-7);
  config.rope.scaling = RopeScaling::kLlama3;
  EXPECT_NEAR(frequency(config, 0), plain(0), 1e-7);        // short waves stay
  EXPECT_NEAR(frequency(config, 31), plain(31) / 4, 1e-9);  // long ones are stretched
  config.rope.scaling = RopeScaling::kYarn;
  EXPECT_NEAR(frequency(config, 0), plain(0), 1e-7);
  EXPECT_NEAR(frequency(config, 31), plain(31) / 4, 1e-9);
  const RopeTable yarn = make_rope_table(config, 1);
  EXPECT_NEAR(yarn.cos[0], 0.1 * std::log(4.0) + 1.0, 1e-6);
  config.rope.scaling = RopeScaling::kNone;
  config.rope.frequency_factors.assign(32, 2.0F);
  EXPECT_NEAR(frequency(config, 5), plain(5) / 2, 1e-7);
}

INSTANTIATE_TEST_SUITE_P(Ops, OperatorsAtLevel, testing::ValuesIn(levels()),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace weft::nn
