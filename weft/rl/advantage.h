// Advantages: how much better than expected each sample, or token, was.
// Pure functions on plain arrays, in double inside and float outside; no libtorch.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace weft::rl {

enum class AdvantageKind : std::uint8_t {
  kGrpo,              // (r - mean) / (std + 1e-6) in the group; Shao et al. 2024 (DeepSeekMath)
  kDrGrpo,            // r - mean in the group; Liu et al. 2025
  kRloo,              // r - mean of the others in the group; Ahmadian et al. 2024
  kGae,               // generalised advantage estimation over tokens; Schulman et al. 2016
  kReinforceBaseline  // r - mean in the group, whitened over the batch (REINFORCE++-baseline)
};
std::string_view to_string(AdvantageKind kind);

// One advantage a sample, from rewards[n] and the group of each sample[n] (any
// ids; samples of a group need not be neighbours). A group of one has mean 0 and
// standard deviation 1. kReinforceBaseline gives r - mean here; whiten() follows.
// kGae is refused by WEFT_CHECK.
std::vector<float> group_advantages(AdvantageKind kind, std::span<const float> rewards,
                                    std::span<const std::int32_t> group);

// Mean and spread of a set of numbers that is spread over shards: the moments of
// the shards are merged, then every shard whitens its own part.
struct Moments {
  double count = 0, mean = 0, sum_squares = 0;  // of differences from the mean
  void merge(const Moments& other);             // Chan, Golub and LeVeque 1979
  double variance() const { return count > 1 ? sum_squares / (count - 1) : 0.0; }
};
Moments moments(std::span<const float> values);
// values := (values - mean) / sqrt(variance + 1e-8).
void whiten(std::span<float> values, const Moments& over);

// Token arrays of several sequences laid end to end: sequence i owns tokens
// [offsets[i], offsets[i + 1]). Only sampled tokens are there, so the recorded
// length is the mask.
struct Gae {
  std::vector<float> advantages;  // [tokens]
  std::vector<float> returns;     // [tokens], advantage + value: the critic's target
};
// delta_t = r_t + gamma V_{t+1} - V_t, A_t = delta_t + gamma lambda A_{t+1}; the
// value after the last token is 0 (a cut sequence counts as ended).
Gae generalized_advantages(std::span<const std::int64_t> offsets, std::span<const float> rewards,
                           std::span<const float> values, double gamma, double lambda);

}  // namespace weft::rl
