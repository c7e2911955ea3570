#include "weft/rl/rollout.h"

#include <algorithm>

#include "weft/base/rng.h"

namespace weft::rl {

std::uint64_t sample_seed(std::uint64_t seed, std::uint64_t step, std::uint64_t cursor,
                          std::uint32_t sample) {
  // Two blocks deep, so that all four coordinates count in full.
  const auto inner = Rng(seed, RngUse::kSample, cursor, sample).block(0);
  const std::uint64_t mixed = (std::uint64_t{inner[0]} << 32) | inner[1];
  const auto outer = Rng(mixed, RngUse::kSample, step, inner[2]).block(0);
  return (std::uint64_t{outer[0]} << 32) | outer[1];
}

Result<std::vector<Group>> roll_out(serve::Engine& engine, std::vector<Prompt> prompts,
                                    std::uint64_t step, const RolloutOptions& options) {
  std::vector<serve::GenerationRequest> requests;
  requests.reserve(prompts.size() * static_cast<std::size_t>(options.group));
  for (const Prompt& prompt : prompts)
    for (std::int64_t s = 0; s < options.group; ++s) {
      serve::GenerationRequest request;
      request.prompt = prompt.tokens;
      request.sampling.max_tokens = options.max_tokens;
      request.sampling.temperature = options.temperature;
      request.sampling.top_logprobs = 0;
      request.sampling.seed =
          sample_seed(options.seed, step, prompt.cursor, static_cast<std::uint32_t>(s));
      requests.push_back(std::move(request));
    }
  WEFT_ASSIGN(auto completions, serve::generate(engine, std::move(requests)));
  std::vector<Group> groups;
  std::size_t next = 0;
  for (Prompt& prompt : prompts) {
    Group group{.prompt = std::move(prompt), .samples = {}};
    for (std::int64_t s = 0; s < options.group; ++s) {
      serve::Completion& c = completions[next++];
      if (c.finish != serve::FinishReason::kStop && c.finish != serve::FinishReason::kLength)
        return fail(ErrorCode::kInternal, "a rollout ended with '{}' {}", to_string(c.finish),
                    c.error);
      Sample sample;
      sample.text = std::move(c.text);
      sample.ended = c.finish == serve::FinishReason::kStop;
      for (const serve::SampledToken& t : c.tokens) {
        sample.tokens.push_back(t.token);
        sample.logp.push_back(t.logprob);
      }
      if (sample.tokens.empty())
        return fail(ErrorCode::kInternal, "a rollout of '{}' has no token", group.prompt.text);
      group.samples.push_back(std::move(sample));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

void score_groups(Task& task, std::vector<Group>& groups) {
  std::vector<Reply> replies;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples)
      replies.push_back({.prompt = &group.prompt,
                         .tokens = sample.tokens,
                         .text = sample.text,
                         .ended = sample.ended});
  std::vector<Score> scores = task.score(replies);
  WEFT_CHECK(scores.size() == replies.size(), "{} scores for {} replies", scores.size(),
             replies.size());
  std::size_t next = 0;
  for (Group& group : groups)
    for (Sample& sample : group.samples) sample.score = std::move(scores[next++]);
}

std::int64_t drop_failed(std::vector<Group>& groups, std::int64_t& dropped) {
  std::int64_t errors = 0;
  const auto failed = [&](const Group& group) {
    const auto n = std::count_if(group.samples.begin(), group.samples.end(),
                                 [](const Sample& s) { return !s.score.error.empty(); });
    errors += n;
    return n > 0;
  };
  dropped += static_cast<std::int64_t>(std::erase_if(groups, failed));
  return errors;
}

bool all_equal(const Group& group) {
  return std::all_of(group.samples.begin(), group.samples.end(), [&](const Sample& s) {
    return s.score.reward == group.samples.front().score.reward;
  });
}

}  // namespace weft::rl
