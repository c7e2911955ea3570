#include "weft/serve/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "weft/nn/ops.h"

namespace weft::serve {
namespace {

using model::TokenId;

std::vector<float> random_logits(Rng& rng, std::size_t n, float scale = 2.0F) {
  std::vector<float> logits(n);
  for (float& logit : logits) logit = scale * rng.next_normal();
  return logits;
}

// The documented distribution, written plainly: adjusted logits, softmax at the
// temperature, then top-k, top-p and min-p over tokens sorted by probability.
std::map<TokenId, double> reference(std::vector<float> logits, const SamplingParams& p,
                                    const std::vector<TokenId>& prompt,
                                    const std::vector<TokenId>& reply) {
  std::map<TokenId, int> seen, counts;
  for (const TokenId id : prompt) ++seen[id];
  for (const TokenId id : reply) ++seen[id], ++counts[id];
  for (const auto& [id, n] : seen) {
    float& x = logits[static_cast<std::size_t>(id)];
    x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
  }
  for (const auto& [id, n] : counts) {
    logits[static_cast<std::size_t>(id)] -=
        static_cast<float>(n) * p.frequency_penalty + p.presence_penalty;
  }
  for (const auto& [id, bias] : p.logit_bias) logits[static_cast<std::size_t>(id)] += bias;
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](TokenId id) { return logits[static_cast<std::size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return logit(a) > logit(b); });
  if (p.temperature == 0.0F) return {{order[0], 1.0}};
  const auto weight = [&](TokenId id) {
    return std::exp(static_cast<double>(logit(id) - logit(order[0])) / p.temperature);
  };
  if (p.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(p.top_k)));
  double total = 0;
  for (const TokenId id : order) total += weight(id);
  std::map<TokenId, double> kept;
  double mass = 0;
  for (const TokenId id : order) {
    if (p.top_p < 1.0F && mass >= p.top_p * total) break;
    mass += weight(id);
    if (weight(id) >= p.min_p) kept[id] = weight(id);
  }
  double sum = 0;
  for (const auto& [id, w] : kept) sum += w;
  for (auto& [id, w] : kept) w /= sum;
  return kept;
}

// Draws many tokens and compares their frequencies with the reference: every token
// lies in its support, and the chi-square statistic is one that happens.
void expect_distribution(const std::vector<float>& logits, SamplingParams params,
                         const std::vector<TokenId>& prompt = {1},
                         const std::vector<TokenId>& reply = {}) {
  const auto expected = reference(logits, params, prompt, reply);
  constexpr int kDraws = 20000;
  std::map<TokenId, int> counts;
  for (int i = 0; i < kDraws; ++i) ++counts[sample(logits, params, prompt, reply, i).token];
  double chi_square = 0, rest_expected = 0, rest = kDraws;
  int cells = 0;
  for (const auto& [id, n] : counts) ASSERT_TRUE(expected.contains(id)) << "token " << id;
  for (const auto& [id, p] : expected) {
    if (p * kDraws < 10) {
      rest_expected += p * kDraws;
      continue;
    }
    const double n = counts.contains(id) ? counts.at(id) : 0;
    chi_square += (n - p * kDraws) * (n - p * kDraws) / (p * kDraws);
    rest -= n;
    ++cells;
  }
  if (rest_expected > 5)
    chi_square += (rest - rest_expected) * (rest - rest_expected) / rest_expected;
  // Mean cells, deviation sqrt(2 cells): six deviations are a defect.
  EXPECT_LT(chi_square, cells + 6 * std::sqrt(2.0 * cells + 2)) << cells << " cells";
}

TEST(Sampling, GreedyTakesTheLargestLogitAndTheLowestIdAmongEquals) {
  Rng rng(1, RngUse::kTest);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> logits = random_logits(rng, 1 + rng.next_below(300));
    const std::size_t copy = rng.next_below(static_cast<std::uint32_t>(logits.size()));
    const auto best = std::ranges::max_element(logits);
    logits[copy] = *best;
    const auto expected = std::ranges::max_element(logits) - logits.begin();
    EXPECT_EQ(sample(logits, {}, {}, {}, 0).token, expected);
  }
}

TEST(Sampling, TemperatureGivesTheSoftmax) {
  Rng rng(2, RngUse::kTest);
  const auto logits = random_logits(rng, 700);
  for (const float temperature : {0.3F, 1.0F, 1.7F}) {
    SamplingParams params;
    params.temperature = temperature;
    params.seed = 11;
    expect_distribution(logits, params);
  }
}

TEST(Sampling, TruncationsKeepWhatTheyPromise) {
  Rng rng(3, RngUse::kTest);
  for (int round = 0; round < 12; ++round) {
    const auto logits = random_logits(rng, 40 + rng.next_below(400));
    SamplingParams params;
    params.temperature = 0.5F + rng.next_uniform();
    params.seed = static_cast<std::uint64_t>(round);
    if (round % 2 == 0) params.top_k = 1 + rng.next_below(30);
    if (round % 3 == 0) params.top_p = 0.3F + 0.6F * rng.next_uniform();
    if (round % 4 == 0) params.min_p = 0.2F * rng.next_uniform();
    expect_distribution(logits, params);
  }
}

TEST(Sampling, PenaltiesAndBiasesChangeTheDistribution) {
  Rng rng(4, RngUse::kTest);
  const auto logits = random_logits(rng, 50);
  SamplingParams params;
  params.temperature = 1.0F;
  params.repetition_penalty = 1.3F;
  params.frequency_penalty = 0.4F;
  params.presence_penalty = -0.3F;
  params.logit_bias = {{7, 2.0F}, {9, -std::numeric_limits<float>::infinity()}};
  expect_distribution(logits, params, {3, 3, 5, 8}, {8, 8, 12, 20});
  params.top_p = 0.8F;
  expect_distribution(logits, params, {3, 3, 5, 8}, {8, 8, 12, 20});
  params.temperature = 0.0F;
  const auto expected = reference(logits, params, {3, 5}, {8});
  EXPECT_EQ(sample(logits, params, std::vector<TokenId>{3, 5}, std::vector<TokenId>{8}, 4).token,
            expected.begin()->first);
}

TEST(Sampling, DrawsDependOnSeedStreamAndPositionOnly) {
  Rng rng(5, RngUse::kTest);
  const auto logits = random_logits(rng, 3000);
  SamplingParams params;
  params.temperature = 1.0F;
  params.seed = 42;
  const auto tokens = [&](SamplingParams p) {
    std::vector<TokenId> out;
    for (int i = 0; i < 64; ++i) out.push_back(sample(logits, p, {}, {}, i).token);
    return out;
  };
  const auto first = tokens(params);
  EXPECT_EQ(first, tokens(params));
  SamplingParams other = params;
  other.seed = 43;
  EXPECT_NE(first, tokens(other));
  other = params;
  other.stream = 1;
  EXPECT_NE(first, tokens(other));
}

TEST(Sampling, LogProbabilityIsOfTheModelsOwnDistribution) {
  Rng rng(6, RngUse::kTest);
  const auto logits = random_logits(rng, 1000);
  SamplingParams params;
  params.temperature = 0.7F;
  params.top_k = 4;
  params.repetition_penalty = 2.0F;
  params.top_logprobs = 5;
  const SampledToken token = sample(logits, params, std::vector<TokenId>{1, 2}, {}, 3);
  const auto n = static_cast<std::int64_t>(logits.size());
  EXPECT_EQ(token.logprob, nn::log_prob(logits.data(), n, 0.7F, token.token));
  ASSERT_EQ(token.top.size(), 5U);
  SamplingParams plain;
  plain.temperature = 0.7F;
  plain.top_k = 5;
  const auto best = reference(logits, plain, {}, {});
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(best.contains(token.top[i].token));
    EXPECT_EQ(token.top[i].logprob, nn::log_prob(logits.data(), n, 0.7F, token.top[i].token));
    if (i > 0) {
      EXPECT_GE(token.top[i - 1].logprob, token.top[i].logprob);
    }
  }
  // Greedy replies report temperature 1.
  SamplingParams greedy;
  greedy.top_logprobs = 0;
  const SampledToken chosen = sample(logits, greedy, {}, {}, 0);
  EXPECT_EQ(chosen.logprob, nn::log_prob(logits.data(), n, 1.0F, chosen.token));
}

TEST(Sampling, NotANumberIsNeverChosen) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> logits(100, nan);
  SamplingParams params;
  EXPECT_EQ(sample(logits, params, {}, {}, 0).token, -1);
  params.temperature = 1.0F;
  EXPECT_EQ(sample(logits, params, {}, {}, 0).token, -1);
  logits[37] = -3.0F;
  for (const std::int64_t top_k : {0, 5}) {
    for (const float top_p : {1.0F, 0.5F}) {
      params.top_k = top_k;
      params.top_p = top_p;
      EXPECT_EQ(sample(logits, params, {}, {}, 0).token, 37);
    }
  }
}

TEST(Sampling, RefusesBadParametersByName) {
  const auto message = [](auto change) {
    SamplingParams params;
    change(params);
    const auto status = validate(params);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(message([](auto&) {}), "");
  using ::testing::HasSubstr;
  EXPECT_THAT(message([](auto& p) { p.max_tokens = 0; }), HasSubstr("max_tokens"));
  EXPECT_THAT(message([](auto& p) { p.temperature = -1; }), HasSubstr("temperature"));
  EXPECT_THAT(message([](auto& p) { p.temperature = std::nanf(""); }), HasSubstr("temperature"));
  EXPECT_THAT(message([](auto& p) { p.top_k = -1; }), HasSubstr("top_k"));
  EXPECT_THAT(message([](auto& p) { p.top_p = 0; }), HasSubstr("top_p"));
  EXPECT_THAT(message([](auto& p) { p.min_p = 2; }), HasSubstr("min_p"));
  EXPECT_THAT(message([](auto& p) { p.repetition_penalty = 0; }), HasSubstr("repetition_penalty"));
  EXPECT_THAT(message([](auto& p) { p.frequency_penalty = 3; }), HasSubstr("frequency_penalty"));
  EXPECT_THAT(message([](auto& p) { p.presence_penalty = -3; }), HasSubstr("presence_penalty"));
  EXPECT_THAT(message([](auto& p) { p.top_logprobs = 5000; }), HasSubstr("top_logprobs"));
  EXPECT_THAT(message([](auto& p) { p.stop = {""}; }), HasSubstr("stop"));
  EXPECT_THAT(message([](auto& p) { p.logit_bias = {{-1, 0.0F}}; }), HasSubstr("logit_bias"));
}

// A constraint takes tokens out and changes nothing else: the draws have the free
// probabilities, renormalised over what is allowed.
TEST(Sampling, AllowedTokensKeepTheirProportions) {
  Rng rng(7, RngUse::kTest, 3);
  const std::size_t n = 200;
  const std::vector<float> logits = random_logits(rng, n);
  std::vector<std::uint64_t> allowed((n + 63) / 64, 0);
  std::vector<TokenId> ids;
  for (std::size_t t = 0; t < n; t += 1 + rng.next_below(9)) {
    allowed[t / 64] |= std::uint64_t{1} << (t % 64);
    ids.push_back(static_cast<TokenId>(t));
  }
  SamplingParams params;
  params.temperature = 0.7F;
  double total = 0;
  for (const TokenId id : ids) {
    total += std::exp(static_cast<double>(logits[static_cast<std::size_t>(id)]) / 0.7);
  }
  constexpr int kDraws = 40'000;
  std::map<TokenId, int> drawn;
  for (int i = 0; i < kDraws; ++i) ++drawn[sample(logits, params, {}, {}, i, allowed).token];
  double chi = 0;
  for (const TokenId id : ids) {
    const double expected =
        kDraws * std::exp(static_cast<double>(logits[static_cast<std::size_t>(id)]) / 0.7) / total;
    chi += (drawn[id] - expected) * (drawn[id] - expected) / expected;
    drawn.erase(id);
  }
  EXPECT_TRUE(drawn.empty());
  // Mean n - 1, deviation sqrt(2n): far beyond five deviations if a weight were off.
  const auto count = static_cast<double>(ids.size());
  EXPECT_LT(chi, count + 5 * std::sqrt(2 * count));
  // Greedy takes the best of them, truncation works on them.
  params.temperature = 0;
  const TokenId best = *std::ranges::max_element(
      ids, {}, [&](TokenId id) { return logits[static_cast<std::size_t>(id)]; });
  EXPECT_EQ(sample(logits, params, {}, {}, 0, allowed).token, best);
  params.temperature = 1;
  params.top_k = 1;
  EXPECT_EQ(sample(logits, params, {}, {}, 0, allowed).token, best);
}

}  // namespace
}  // namespace weft::serve
