#include "weft/serve/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "weft/nn/kv_pool.h"

namespace weft::serve {

namespace {

// Runs whole windows of one model.
class WindowRunner {
 public:
  WindowRunner(std::shared_ptr<const nn::TransformerWeights> weights, std::int64_t window,
               ThreadPool& pool)
      : pages_((window + nn::kAttentionBlock - 1) / nn::kAttentionBlock),
        kv_(weights->config, pages_),
        transformer_(std::move(weights), pool, window) {
    for (std::int64_t i = 0; i < pages_; ++i) table_.push_back(*kv_.allocate());
  }

  // Logits of the positions from `first` on.
  const std::vector<float>& run(std::span<const model::TokenId> tokens, std::size_t first) {
    std::vector<nn::TokenRow> rows;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      rows.push_back({tokens[i], 0, static_cast<std::int32_t>(i), i >= first});
    }
    const std::span<const std::int32_t> tables[] = {table_};
    transformer_.forward(rows, tables, kv_, logits_);
    return logits_;
  }

 private:
  std::int64_t pages_;
  nn::KvPool kv_;
  nn::Transformer transformer_;
  std::vector<std::int32_t> table_;
  std::vector<float> logits_;
};

// A row of logits as log-probabilities in double precision.
struct Row {
  std::span<const float> logits;
  double max = 0, log_sum = 0;

  explicit Row(std::span<const float> values) : logits(values) {
    max = static_cast<double>(*std::ranges::max_element(values));
    double sum = 0;
    for (const float x : values) sum += std::exp(static_cast<double>(x) - max);
    log_sum = std::log(sum);
  }
  double log_prob(std::size_t token) const {
    return static_cast<double>(logits[token]) - max - log_sum;
  }
  std::ptrdiff_t best() const { return std::ranges::max_element(logits) - logits.begin(); }
};

double divergence(const Row& reference, const Row& model) {
  double sum = 0;
  for (std::size_t i = 0; i < reference.logits.size(); ++i) {
    const double log_p = reference.log_prob(i);
    sum += std::exp(log_p) * (log_p - model.log_prob(i));
  }
  return sum;
}

}  // namespace

Result<Evaluation> evaluate(std::shared_ptr<const nn::TransformerWeights> weights,
                            std::shared_ptr<const nn::TransformerWeights> reference,
                            std::span<const model::TokenId> text, const EvaluateOptions& options,
                            ThreadPool& pool) {
  const model::ModelConfig& config = weights->config;
  const auto size = static_cast<std::int64_t>(text.size());
  if (options.window < 4 || options.window > config.max_position) {
    return fail(ErrorCode::kInvalidArgument, "a window must have 4 to {} tokens, not {}",
                config.max_position, options.window);
  }
  if (options.skip >= options.window - 1) {
    return fail(ErrorCode::kInvalidArgument, "skipping {} of {} tokens leaves none to score",
                options.skip, options.window);
  }
  if (size < options.window) {
    return fail(ErrorCode::kInvalidArgument,
                "the text has {} tokens, fewer than one window of {}; give a longer text or a "
                "smaller window",
                size, options.window);
  }
  for (const model::TokenId id : text) {
    if (id < 0 || id >= config.vocab_size) {
      return fail(ErrorCode::kInvalidArgument, "token {} is outside the vocabulary of {}", id,
                  config.vocab_size);
    }
  }
  if (reference && reference->config.vocab_size != config.vocab_size) {
    return fail(ErrorCode::kInvalidArgument,
                "the reference has {} tokens in its vocabulary, the model {}",
                reference->config.vocab_size, config.vocab_size);
  }
  const std::int64_t windows = options.windows > 0
                                   ? std::min(options.windows, size / options.window)
                                   : size / options.window;
  const auto window = static_cast<std::size_t>(options.window);
  const auto vocab = static_cast<std::size_t>(config.vocab_size);
  WindowRunner runner(std::move(weights), options.window, pool);
  std::optional<WindowRunner> other;
  if (reference) other.emplace(std::move(reference), options.window, pool);

  // One entry for each scored position, added up in order at the end.
  const std::size_t skip = options.skip < 0 ? window / 2 : static_cast<std::size_t>(options.skip);
  const std::size_t scored = window - skip - 1;
  std::vector<double> log_probs, kls;
  std::vector<char> same;
  for (std::int64_t w = 0; w < windows; ++w) {
    const auto tokens = text.subspan(static_cast<std::size_t>(w) * window, window);
    const std::vector<float>& logits = runner.run(tokens, skip);
    const std::vector<float>* theirs = other ? &other->run(tokens, skip) : nullptr;
    const std::size_t first = log_probs.size();
    log_probs.resize(first + scored);
    kls.resize(first + scored);
    same.resize(first + scored);
    pool.parallel_for(
        static_cast<std::int64_t>(scored), 1, [&](std::int64_t begin, std::int64_t end) {
          for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
            const Row row{std::span(logits).subspan(i * vocab, vocab)};
            const auto next = static_cast<std::size_t>(tokens[skip + i + 1]);
            log_probs[first + i] = row.log_prob(next);
            if (theirs == nullptr) continue;
            const Row base{std::span(*theirs).subspan(i * vocab, vocab)};
            kls[first + i] = divergence(base, row);
            same[first + i] = base.best() == row.best() ? 1 : 0;
          }
        });
  }
  Evaluation result;
  result.tokens = static_cast<std::int64_t>(log_probs.size());
  const auto count = static_cast<double>(log_probs.size());
  result.perplexity = std::exp(-std::accumulate(log_probs.begin(), log_probs.end(), 0.0) / count);
  if (other) {
    result.mean_kl = std::accumulate(kls.begin(), kls.end(), 0.0) / count;
    result.max_kl = *std::ranges::max_element(kls);
    result.same_best = std::accumulate(same.begin(), same.end(), 0.0) / count;
  }
  return result;
}

}  // namespace weft::serve
