// Rollouts: G replies to each prompt from an engine, scored.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/base/result.h"
#include "weft/rl/task.h"
#include "weft/serve/engine.h"

namespace weft::rl {

struct Sample {
  std::vector<model::TokenId> tokens;  // sampled, with the end token if it came
  std::vector<float> logp;             // as the sampler computed them
  std::string text;
  bool ended = false;  // false: cut at max_tokens
  Score score;
};

// All replies to one prompt; groups stay whole from here on.
struct Group {
  Prompt prompt;
  std::vector<Sample> samples;
};

struct RolloutOptions {
  std::int64_t group = 8;
  std::int64_t max_tokens = 0;
  float temperature = 1.0F;  // 0 = greedy, for evaluation
  std::uint64_t seed = 0;
};

// The seed of one reply, from logical coordinates alone.
std::uint64_t sample_seed(std::uint64_t seed, std::uint64_t step, std::uint64_t cursor,
                          std::uint32_t sample);

// Generates and returns unscored groups, in the order of `prompts`.
Result<std::vector<Group>> roll_out(serve::Engine& engine, std::vector<Prompt> prompts,
                                    std::uint64_t step, const RolloutOptions& options);

// Scores every sample of the groups.
void score_groups(Task& task, std::vector<Group>& groups);

// Moves out groups that must not be trained on: those with a sample that has no
// reward (a partial group would bias the baseline). Gives how many samples had none.
std::int64_t drop_failed(std::vector<Group>& groups, std::int64_t& dropped);

// Are all rewards of the group equal (so that it teaches nothing)?
bool all_equal(const Group& group);

}  // namespace weft::rl
