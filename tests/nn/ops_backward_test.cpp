// Backward loops: the same bits at every instruction level; tiles close to f32. Against
// torch's gradients they are checked in tests/train/autograd_reference_test.cpp.
#include "weft/nn/ops_backward.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "weft/base/rng.h"
#include "weft/nn/isa.h"

namespace weft::nn {
namespace {

std::vector<float> random(std::int64_t count, std::uint64_t seed, float scale = 1.0F) {
  Rng rng(seed, RngUse::kTest);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = scale * rng.next_normal();
  return values;
}

class OpsBackward : public testing::Test {
 protected:
  ~OpsBackward() override { EXPECT_TRUE(set_isa(best_).has_value()); }

  // Runs `body` at every level of this machine and compares what it returns.
  void same_at_every_level(const std::function<std::vector<float>()>& body) {
    ASSERT_TRUE(set_isa(Isa::kScalar).has_value());
    const std::vector<float> reference = body();
    for (const float v : reference) ASSERT_TRUE(std::isfinite(v));
    for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
      if (isa > best_) continue;
      ASSERT_TRUE(set_isa(isa).has_value());
      EXPECT_EQ(body(), reference) << to_string(isa);
    }
  }

  Isa best_ = cpu_isa();
  ThreadPool pool_{2};
};

TEST_F(OpsBackward, NormsGiveTheSameBits) {
  constexpr std::int64_t kRows = 7, kWidth = 53;
  const auto x = random(kRows * kWidth, 1), dy = random(kRows * kWidth, 2),
             residual = random(kRows * kWidth, 3), weight = random(kWidth, 4),
             mean = random(kRows, 5);
  std::vector<float> inverse(kRows, 0.7F);
  same_at_every_level([&] {
    std::vector<float> dx(x.size()), dweight = random(kWidth, 6), dbias = random(kWidth, 7);
    rms_norm_backward(x.data(), weight.data(), inverse.data(), dy.data(), residual.data(), kRows,
                      kWidth, dx.data(), dweight.data(), pool_);
    std::vector<float> all = dx;
    layer_norm_backward(x.data(), weight.data(), mean.data(), inverse.data(), dy.data(), nullptr,
                        kRows, kWidth, dx.data(), dweight.data(), dbias.data(), pool_);
    for (const auto* part : {&dx, &dweight, &dbias})
      all.insert(all.end(), part->begin(), part->end());
    return all;
  });
}

TEST_F(OpsBackward, ActivationsAndSumsGiveTheSameBits) {
  constexpr std::int64_t kRows = 5, kWidth = 37;
  const auto x = random(kRows * 2 * kWidth, 1, 3.0F), dy = random(kRows * 2 * kWidth, 2);
  same_at_every_level([&] {
    std::vector<float> all(x.size()), out(x.size());
    silu_mul_backward(x.data(), dy.data(), kRows, kWidth, all.data(), pool_);
    for (const bool tanh_form : {true, false}) {
      gelu_backward(x.data(), dy.data(), kRows * kWidth, tanh_form, out.data(), pool_);
      all.insert(all.end(), out.begin(), out.end());
    }
    add(x.data(), dy.data(), kRows * kWidth, out.data(), pool_);
    add_rows(dy.data(), kRows, kWidth, kWidth, out.data(), pool_);
    all.insert(all.end(), out.begin(), out.end());
    return all;
  });
}

TEST_F(OpsBackward, LogProbabilitiesGiveTheSameBits) {
  constexpr std::int64_t kRows = 4, kVocab = 101;
  const auto logits = random(kRows * kVocab, 1, 4.0F), dlogprob = random(kRows, 2),
             dentropy = random(kRows, 3), lse = std::vector<float>(kRows, 9.5F);
  const std::vector<std::int32_t> tokens{0, 100, 50, 7};
  same_at_every_level([&] {
    std::vector<float> all = logits, entropy(kRows);
    row_entropy(logits.data(), lse.data(), kRows, kVocab, 0.9F, entropy.data(), pool_);
    log_prob_backward(all.data(), lse.data(), tokens.data(), dlogprob.data(), entropy.data(),
                      dentropy.data(), kRows, kVocab, 0.9F, pool_);
    all.insert(all.end(), entropy.begin(), entropy.end());
    return all;
  });
}

struct AttentionCase {
  std::int64_t head_dim, window;
  std::vector<Segment> segments;
};

std::vector<AttentionCase> attention_cases() {
  const std::vector<Segment> shared = {
      {0, 37, 0, -1}, {37, 50, 37, 0}, {50, 51, 37, 0}, {51, 120, 37, 0}, {120, 190, 0, -1}};
  return {{64, 0, shared},
          {64, 20, shared},
          {40, 0, shared},
          {6, 33, shared},
          {128, 0, {{0, 64, 0, -1}}}};
}

std::vector<float> attention_gradient(const AttentionCase& c, bool bf16, ThreadPool& pool) {
  constexpr std::int64_t kHeads = 6, kKvHeads = 2;
  const std::int64_t rows = c.segments.back().end, ld = (kHeads + 2 * kKvHeads) * c.head_dim;
  const auto qkv = random(rows * ld, 1), dout = random(rows * kHeads * c.head_dim, 2),
             out = random(rows * kHeads * c.head_dim, 3, 0.2F);
  const std::vector<float> lse(static_cast<std::size_t>(rows * kHeads), 4.0F);
  std::vector<float> dqkv(qkv.size(), NAN);
  attention_backward({.heads = kHeads,
                      .kv_heads = kKvHeads,
                      .head_dim = c.head_dim,
                      .scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim)),
                      .window = c.window,
                      .qkv = qkv.data(),
                      .out = out.data(),
                      .logsumexp = lse.data(),
                      .dout = dout.data(),
                      .dqkv = dqkv.data(),
                      .bf16 = bf16},
                     c.segments, pool);
  return dqkv;
}

TEST_F(OpsBackward, AttentionGivesTheSameBitsAndThreadsDoNotMatter) {
  for (const AttentionCase& c : attention_cases()) {
    same_at_every_level([&] { return attention_gradient(c, false, pool_); });
    ThreadPool one(1);
    EXPECT_EQ(attention_gradient(c, false, one), attention_gradient(c, false, pool_));
  }
}

TEST_F(OpsBackward, AttentionOnTilesIsCloseToF32) {
  if (best_ < Isa::kAmx) GTEST_SKIP() << "this processor has no AMX";
  for (const AttentionCase& c : attention_cases()) {
    const auto exact = attention_gradient(c, false, pool_),
               tiles = attention_gradient(c, true, pool_);
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      error += std::pow(double{tiles[i]} - exact[i], 2);
      norm += std::pow(double{exact[i]}, 2);
    }
    // bf16 keeps 8 bits: single errors of 2^-9 that partly cancel in sums.
    EXPECT_LT(std::sqrt(error / norm), 0.006) << c.head_dim << " " << c.window;
    ThreadPool one(1);
    EXPECT_EQ(attention_gradient(c, true, one), tiles);
  }
}

}  // namespace
}  // namespace weft::nn
