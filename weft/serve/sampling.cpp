#include "weft/serve/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/nn/ops.h"

namespace weft::serve {

using model::TokenId;

Status validate(const SamplingParams& p) {
  const auto bad = [](const char* field, const char* want, auto value) -> Status {
    return fail(ErrorCode::kInvalidArgument, "{} must be {}, not {}", field, want, value);
  };
  if (p.max_tokens < 1) return bad("max_tokens", "at least 1", p.max_tokens);
  if (!(p.temperature >= 0.0F && p.temperature <= 100.0F)) {
    return bad("temperature", "between 0 and 100", p.temperature);
  }
  if (p.top_k < 0) return bad("top_k", "0 (off) or more", p.top_k);
  if (!(p.top_p > 0.0F && p.top_p <= 1.0F)) return bad("top_p", "above 0 and at most 1", p.top_p);
  if (!(p.min_p >= 0.0F && p.min_p <= 1.0F)) return bad("min_p", "between 0 and 1", p.min_p);
  if (!(p.repetition_penalty > 0.0F && std::isfinite(p.repetition_penalty))) {
    return bad("repetition_penalty", "above 0", p.repetition_penalty);
  }
  if (!(std::abs(p.frequency_penalty) <= 2.0F)) {
    return bad("frequency_penalty", "between -2 and 2", p.frequency_penalty);
  }
  if (!(std::abs(p.presence_penalty) <= 2.0F)) {
    return bad("presence_penalty", "between -2 and 2", p.presence_penalty);
  }
  if (p.top_logprobs < -1 || p.top_logprobs > kMaxTopLogprobs) {
    return bad("top_logprobs", "between 0 and 1000", p.top_logprobs);
  }
  for (const std::string& stop : p.stop) {
    if (stop.empty())
      return fail(ErrorCode::kInvalidArgument, "stop: an empty string stops nothing");
  }
  for (const auto& [token, bias] : p.logit_bias) {
    if (token < 0) return bad("logit_bias", "keyed by token ids of 0 or more", token);
    if (!(bias < std::numeric_limits<float>::infinity())) return bad("logit_bias", "finite", bias);
  }
  return {};
}

namespace {

constexpr std::size_t kBlock = 256;   // tokens between two running sums of the draw
constexpr float kFarBelow = -100.0F;  // its exponential counts as 0

// Working space of one thread; its contents do not outlive a call.
struct Space {
  std::vector<float> adjusted;  // logits after penalties, or their exponentials
  std::vector<double> block_sums;
  std::vector<TokenId> history;
  std::vector<TokenLogprob> candidates;  // here `logprob` is a logit or a probability
};

bool penalised(const SamplingParams& p) {
  return p.repetition_penalty != 1.0F || p.frequency_penalty != 0.0F ||
         p.presence_penalty != 0.0F || !p.logit_bias.empty();
}

void penalise(std::span<float> logits, const SamplingParams& p, std::span<const TokenId> prompt,
              std::span<const TokenId> reply, std::vector<TokenId>& history) {
  const auto known = [&](TokenId id) {
    return id >= 0 && static_cast<std::size_t>(id) < logits.size();
  };
  if (p.repetition_penalty != 1.0F) {
    history.assign(prompt.begin(), prompt.end());
    history.insert(history.end(), reply.begin(), reply.end());
    std::ranges::sort(history);
    history.erase(std::unique(history.begin(), history.end()), history.end());
    for (const TokenId id : history) {
      if (!known(id)) continue;
      float& logit = logits[static_cast<std::size_t>(id)];
      logit = logit > 0.0F ? logit / p.repetition_penalty : logit * p.repetition_penalty;
    }
  }
  if (p.frequency_penalty != 0.0F || p.presence_penalty != 0.0F) {
    history.assign(reply.begin(), reply.end());
    std::ranges::sort(history);
    for (std::size_t i = 0; i < history.size();) {
      std::size_t end = i;
      while (end < history.size() && history[end] == history[i]) ++end;
      if (known(history[i])) {
        logits[static_cast<std::size_t>(history[i])] -=
            static_cast<float>(end - i) * p.frequency_penalty + p.presence_penalty;
      }
      i = end;
    }
  }
  for (const auto& [token, bias] : p.logit_bias) {
    if (known(token)) logits[static_cast<std::size_t>(token)] += bias;
  }
}

// Copies the allowed logits to `to`, -infinity elsewhere. `to` may be `from`.
void keep_allowed(std::span<const float> from, std::span<const std::uint64_t> allowed,
                  std::span<float> to) {
  constexpr std::size_t kBits = 64;
  for (std::size_t begin = 0; begin < from.size(); begin += kBits) {
    const std::size_t count = std::min(kBits, from.size() - begin);
    const std::uint64_t word = begin / kBits < allowed.size() ? allowed[begin / kBits] : 0;
    for (std::size_t i = 0; i < count; ++i) {
      to[begin + i] =
          ((word >> i) & 1U) != 0 ? from[begin + i] : -std::numeric_limits<float>::infinity();
    }
  }
}

// Eight floats that the compiler keeps in vector registers at any level.
using Lanes = float __attribute__((vector_size(32)));
constexpr std::size_t kLanes = 8;

// The largest logit that is a number, or -infinity.
float largest(std::span<const float> logits) {
  const float lowest = -std::numeric_limits<float>::infinity();
  Lanes a, b;
  for (std::size_t lane = 0; lane < kLanes; ++lane) a[lane] = b[lane] = lowest;
  std::size_t i = 0;
  for (; i + 2 * kLanes <= logits.size(); i += 2 * kLanes) {
    Lanes x, y;
    __builtin_memcpy(&x, logits.data() + i, sizeof x);
    __builtin_memcpy(&y, logits.data() + i + kLanes, sizeof y);
    a = x > a ? x : a;  // a NaN compares false and leaves `a`
    b = y > b ? y : b;
  }
  float best = lowest;
  for (std::size_t lane = 0; lane < kLanes; ++lane) best = std::max({best, a[lane], b[lane]});
  for (; i < logits.size(); ++i) best = logits[i] > best ? logits[i] : best;
  return best;
}

TokenId first_equal(std::span<const float> logits, float value) {
  return static_cast<TokenId>(std::ranges::find(logits, value) - logits.begin());
}

bool more_probable(const TokenLogprob& a, const TokenLogprob& b) {
  return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token);
}

// The k largest logits, the largest first, lowest ids among equals.
void select_largest(std::span<const float> logits, std::int64_t k,
                    std::vector<TokenLogprob>& best) {
  best.clear();
  const auto count =
      static_cast<std::size_t>(std::min<std::int64_t>(k, static_cast<std::int64_t>(logits.size())));
  if (count == 0) return;
  std::size_t i = 0;
  for (; best.size() < count && i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) best.push_back({static_cast<TokenId>(i), logits[i]});
  }
  // A heap with the least probable on top; a later equal logit never replaces it.
  std::ranges::make_heap(best, more_probable);
  for (; i < logits.size(); ++i) {
    if (!(logits[i] > best.front().logprob)) continue;
    std::ranges::pop_heap(best, more_probable);
    best.back() = {static_cast<TokenId>(i), logits[i]};
    std::ranges::push_heap(best, more_probable);
  }
  std::ranges::sort_heap(best, more_probable);
}

float uniform(const SamplingParams& params, std::int64_t position) {
  return Rng(params.seed, RngUse::kSample, params.stream)
      .uniform(static_cast<std::uint64_t>(position));
}

// Draws from candidates sorted by falling probability; `logprob` holds weights that
// need not sum to 1.
TokenId draw_sorted(std::span<const TokenLogprob> candidates, float u) {
  double total = 0.0;
  for (const TokenLogprob& c : candidates) total += static_cast<double>(c.logprob);
  const double target = static_cast<double>(u) * total;
  double running = 0.0;
  for (const TokenLogprob& c : candidates) {
    running += static_cast<double>(c.logprob);
    if (running > target) return c.token;
  }
  return candidates.front().token;  // unreachable but for rounding at u near 1
}

// Draws in order of ids. `sums` holds the running sums at the end of each block.
TokenId draw_by_id(std::span<const float> weights, std::span<const double> sums, float u) {
  const double target = static_cast<double>(u) * sums.back();
  const auto block =
      static_cast<std::size_t>(std::ranges::upper_bound(sums, target) - sums.begin());
  const std::size_t begin = std::min(block, sums.size() - 1) * kBlock;
  double running = begin == 0 ? 0.0 : sums[begin / kBlock - 1];
  auto chosen = static_cast<TokenId>(begin);
  for (std::size_t i = begin; i < std::min(weights.size(), begin + kBlock); ++i) {
    if (weights[i] == 0.0F) continue;
    chosen = static_cast<TokenId>(i);
    running += static_cast<double>(weights[i]);
    if (running > target) break;
  }
  return chosen;
}

// Keeps the nucleus of `candidates` (sorted, weights relative to the largest).
void cut_top_p(std::vector<TokenLogprob>& candidates, float top_p, double total) {
  const double enough = static_cast<double>(top_p) * total;
  double running = 0.0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    running += static_cast<double>(candidates[i].logprob);
    if (running >= enough) {
      candidates.resize(i + 1);
      return;
    }
  }
}

void cut_min_p(std::vector<TokenLogprob>& candidates, float min_p) {
  const float least = min_p * candidates.front().logprob;
  while (candidates.back().logprob < least) candidates.pop_back();
}

// out = exp((logit - max) / temperature), 0 where that is below the smallest normal
// number, below `least`, or not a number; `sums` takes the running sum after each
// block. `out` may be `logits`.
void exponentials(std::span<const float> logits, float max, float temperature, float least,
                  std::span<float> out, std::vector<double>& sums) {
  const float inverse = 1.0F / temperature;
  const float floor = std::max(least, std::numeric_limits<float>::min());
  double total = 0.0;
  sums.clear();
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const std::size_t count = std::min(logits.size() - begin, kBlock);
    const float* from = logits.data() + begin;
    float* to = out.data() + begin;
    Lanes sum{};
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      Lanes x;
      __builtin_memcpy(&x, from + i, sizeof x);
      x = (x - max) * inverse;
      x = x > kFarBelow ? x : Lanes{} + kFarBelow;  // also for NaN
      __builtin_memcpy(to + i, &x, sizeof x);
    }
    for (; i < count; ++i) {
      const float x = (from[i] - max) * inverse;
      to[i] = x > kFarBelow ? x : kFarBelow;
    }
    nn::exp_f32(to, static_cast<std::int64_t>(count), to);
    for (i = 0; i + kLanes <= count; i += kLanes) {
      Lanes x;
      __builtin_memcpy(&x, to + i, sizeof x);
      x = x >= floor ? x : Lanes{};
      sum += x;
      __builtin_memcpy(to + i, &x, sizeof x);
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) total += static_cast<double>(sum[lane]);
    for (; i < count; ++i) {
      to[i] = to[i] >= floor ? to[i] : 0.0F;
      total += static_cast<double>(to[i]);
    }
    sums.push_back(total);
  }
}

TokenId choose(std::span<const float> logits, const SamplingParams& params, std::int64_t position,
               Space& space) {
  const float max = largest(logits);
  if (!std::isfinite(max)) return -1;
  if (params.temperature == 0.0F) return first_equal(logits, max);
  const float u = uniform(params, position);
  auto& candidates = space.candidates;
  if (params.top_k > 0) {
    select_largest(logits, params.top_k, candidates);
    double total = 0.0;
    for (TokenLogprob& c : candidates) {
      c.logprob = nn::exp_f32((c.logprob - max) * (1.0F / params.temperature));
      total += static_cast<double>(c.logprob);
    }
    if (params.top_p < 1.0F) cut_top_p(candidates, params.top_p, total);
    cut_min_p(candidates, params.min_p);
    return draw_sorted(candidates, u);
  }
  space.adjusted.resize(logits.size());
  const std::span<float> weights(space.adjusted);
  const bool by_id = params.top_p == 1.0F;
  exponentials(logits, max, params.temperature, by_id ? params.min_p : 0.0F, weights,
               space.block_sums);
  if (by_id) return draw_by_id(weights, space.block_sums, u);
  const double total = space.block_sums.back();
  // Tokens below this hold less than 1 - top_p together: the nucleus is without them.
  const auto least = static_cast<float>((1.0 - static_cast<double>(params.top_p)) * total /
                                        static_cast<double>(weights.size()) * 0.5);
  candidates.clear();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] >= least && weights[i] > 0.0F)
      candidates.push_back({static_cast<TokenId>(i), weights[i]});
  }
  std::ranges::sort(candidates, more_probable);
  cut_top_p(candidates, params.top_p, total);
  cut_min_p(candidates, params.min_p);
  return draw_sorted(candidates, u);
}

}  // namespace

SampledToken sample(std::span<const float> logits, const SamplingParams& params,
                    std::span<const TokenId> prompt, std::span<const TokenId> reply,
                    std::int64_t position, std::span<const std::uint64_t> allowed) {
  thread_local Space space;
  SampledToken sampled;
  std::span<const float> scores = logits;
  if (penalised(params)) {
    // choose() may overwrite `adjusted` only after it has read each logit.
    space.adjusted.assign(logits.begin(), logits.end());
    penalise(space.adjusted, params, prompt, reply, space.history);
    scores = space.adjusted;
  }
  if (!allowed.empty()) {
    space.adjusted.resize(logits.size());
    keep_allowed(scores, allowed, space.adjusted);
    scores = space.adjusted;
  }
  sampled.token = choose(scores, params, position, space);
  if (sampled.token < 0 || params.top_logprobs < 0) return sampled;
  const float temperature = params.temperature == 0.0F ? 1.0F : params.temperature;
  const auto size = static_cast<std::int64_t>(logits.size());
  sampled.logprob = nn::log_prob(logits.data(), size, temperature, sampled.token);
  if (params.top_logprobs > 0) {
    select_largest(logits, params.top_logprobs, space.candidates);
    for (const TokenLogprob& c : space.candidates) {
      sampled.top.push_back({c.token, nn::log_prob(logits.data(), size, temperature, c.token)});
    }
  }
  return sampled;
}

}  // namespace weft::serve
