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

constexpr auto kBlock = static_cast<std::size_t>(nn::kSoftmaxBlock);

// Working space of one thread; its contents do not outlive a call.
struct Space {
  std::vector<float> adjusted;  // logits after penalties
  std::vector<float> weights;
  std::vector<double> sums;  // of the weights, after each block
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
    if (word == 0) {
      std::ranges::fill(to.subspan(begin, count), -std::numeric_limits<float>::infinity());
      continue;
    }
    for (std::size_t i = 0; i < count; ++i) {
      to[begin + i] =
          ((word >> i) & 1U) != 0 ? from[begin + i] : -std::numeric_limits<float>::infinity();
    }
  }
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
// The weights of the one block that the draw falls into are computed again: cheaper
// than keeping those of all.
TokenId draw_by_id(std::span<const float> logits, float inverse, float peak, float least,
                   std::span<const double> sums, float u) {
  const double target = static_cast<double>(u) * sums.back();
  const auto block =
      static_cast<std::size_t>(std::ranges::upper_bound(sums, target) - sums.begin());
  const std::size_t begin = std::min(block, sums.size() - 1) * kBlock;
  const std::size_t count = std::min(logits.size() - begin, kBlock);
  float weights[kBlock];
  nn::softmax_weights(logits.data() + begin, static_cast<std::int64_t>(count), inverse, peak, least,
                      weights, nullptr);
  double running = begin == 0 ? 0.0 : sums[begin / kBlock - 1];
  std::size_t chosen = begin;
  for (std::size_t i = 0; i < count; ++i) {
    if (weights[i] == 0.0F) continue;
    chosen = begin + i;
    running += static_cast<double>(weights[i]);
    if (running > target) break;
  }
  return static_cast<TokenId>(chosen);
}

bool less_probable(const TokenLogprob& a, const TokenLogprob& b) { return more_probable(b, a); }

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

// The same of candidates in any order, which are taken from a heap one by one: a
// nucleus is far smaller than its vocabulary. Leaves it sorted.
void take_top_p(std::vector<TokenLogprob>& candidates, float top_p, double total) {
  const double enough = static_cast<double>(top_p) * total;
  std::ranges::make_heap(candidates, less_probable);
  double running = 0.0;
  auto end = candidates.end();
  while (end != candidates.begin() && !(running >= enough)) {
    std::ranges::pop_heap(candidates.begin(), end, less_probable);
    running += static_cast<double>((--end)->logprob);
  }
  candidates.erase(candidates.begin(), end);
  std::ranges::reverse(candidates);
}

void cut_min_p(std::vector<TokenLogprob>& candidates, float min_p) {
  const float least = min_p * candidates.front().logprob;
  while (candidates.back().logprob < least) candidates.pop_back();
}

// What a choice leaves for the log-probability: log_sum_exp's two halves.
struct Softmax {
  bool known = false;
  float peak = 0.0F, sum = 0.0F;
};

TokenId choose(std::span<const float> logits, const SamplingParams& params, std::int64_t position,
               Space& space, Softmax& softmax) {
  const auto size = static_cast<std::int64_t>(logits.size());
  const float inverse = params.temperature == 0.0F ? 1.0F : 1.0F / params.temperature;
  std::int64_t first = 0;
  const float peak = nn::largest_logit(logits.data(), size, inverse, &first);
  if (!std::isfinite(peak)) return -1;
  if (params.temperature == 0.0F) return static_cast<TokenId>(first);
  const float u = uniform(params, position);
  auto& candidates = space.candidates;
  if (params.top_k > 0) {
    select_largest(logits, params.top_k, candidates);
    double total = 0.0;
    for (TokenLogprob& c : candidates) {
      c.logprob = nn::exp_f32(c.logprob * inverse - peak);
      total += static_cast<double>(c.logprob);
    }
    if (params.top_p < 1.0F) cut_top_p(candidates, params.top_p, total);
    cut_min_p(candidates, params.min_p);
    return draw_sorted(candidates, u);
  }
  const bool by_id = params.top_p == 1.0F;
  const float least = by_id ? params.min_p : 0.0F;
  space.sums.resize((logits.size() + kBlock - 1) / kBlock);
  if (!by_id) space.weights.resize(logits.size());
  const float sum = nn::softmax_weights(logits.data(), size, inverse, peak, least,
                                        by_id ? nullptr : space.weights.data(), space.sums.data());
  softmax = {true, peak, sum};
  if (by_id) return draw_by_id(logits, inverse, peak, least, space.sums, u);
  const double total = space.sums.back();
  // Tokens below this hold less than 1 - top_p together: the nucleus is without them.
  const auto small = static_cast<float>((1.0 - static_cast<double>(params.top_p)) * total /
                                        static_cast<double>(logits.size()) * 0.5);
  candidates.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (space.weights[i] >= small && space.weights[i] > 0.0F) {
      candidates.push_back({static_cast<TokenId>(i), space.weights[i]});
    }
  }
  take_top_p(candidates, params.top_p, total);
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
    space.adjusted.assign(logits.begin(), logits.end());
    penalise(space.adjusted, params, prompt, reply, space.history);
    scores = space.adjusted;
  }
  if (!allowed.empty()) {
    space.adjusted.resize(logits.size());
    keep_allowed(scores, allowed, space.adjusted);
    scores = space.adjusted;
  }
  Softmax softmax;
  sampled.token = choose(scores, params, position, space, softmax);
  if (sampled.token < 0 || params.top_logprobs < 0) return sampled;
  const float temperature = params.temperature == 0.0F ? 1.0F : params.temperature;
  const auto size = static_cast<std::int64_t>(logits.size());
  // The very sum of nn::log_prob, unless the scores were penalised.
  sampled.logprob = softmax.known && scores.data() == logits.data()
                        ? logits[static_cast<std::size_t>(sampled.token)] * (1.0F / temperature) -
                              (softmax.peak + nn::log_f32(softmax.sum))
                        : nn::log_prob(logits.data(), size, temperature, sampled.token);
  if (params.top_logprobs > 0) {
    select_largest(logits, params.top_logprobs, space.candidates);
    for (const TokenLogprob& c : space.candidates) {
      sampled.top.push_back({c.token, nn::log_prob(logits.data(), size, temperature, c.token)});
    }
  }
  return sampled;
}

}  // namespace weft::serve
