#include "weft/serve/engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "weft/serve/batch.h"
#include "weft/serve/sequence.h"

namespace weft::serve {

using Clock = std::chrono::steady_clock;

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "none";
}

namespace {

std::int64_t context_limit(const model::ModelConfig& config, const EngineOptions& options) {
  return options.max_context > 0 ? std::min(options.max_context, config.max_position)
                                 : config.max_position;
}

std::int64_t page_count(const model::ModelConfig& config, const EngineOptions& options) {
  if (options.kv_pages > 0) return options.kv_pages;
  const std::int64_t affordable = options.kv_bytes / nn::KvPool::page_bytes(config);
  const std::int64_t useful =
      options.max_sequences * (context_limit(config, options) / nn::kAttentionBlock + 1);
  return std::clamp<std::int64_t>(affordable, 1, useful);
}

}  // namespace

struct Engine::Impl {
  Impl(std::shared_ptr<const nn::TransformerWeights> model_weights,
       std::shared_ptr<const model::Tokenizer> text, const EngineOptions& given,
       ThreadPool& threads)
      : options(given),
        tokenizer(std::move(text)),
        pool(threads),
        vocab_size(model_weights->config.vocab_size),
        batcher(model_weights->config, options, page_count(model_weights->config, options)),
        max_context(std::min(context_limit(model_weights->config, options),
                             batcher.kv().pages() * nn::kAttentionBlock)),
        transformer(std::move(model_weights), pool, max_context) {
    WEFT_CHECK(options.max_batch_tokens > 0 && options.max_sequences > 0 && options.max_queue > 0);
    for (const std::int64_t id : transformer.weights().config.eos_tokens) {
      eos.push_back(static_cast<model::TokenId>(id));
    }
    if (tokenizer) eos.insert(eos.end(), tokenizer->eos().begin(), tokenizer->eos().end());
    batcher.fill(stats);
  }

  Status check(const GenerationRequest& request) const;
  void take_inbox();
  bool step();
  void advance(Sequence& sequence, SampledToken token);
  void end(std::unique_ptr<Sequence> sequence, FinishReason reason);
  void publish();
  void run_thread();

  const EngineOptions options;
  const std::shared_ptr<const model::Tokenizer> tokenizer;
  ThreadPool& pool;
  const std::int64_t vocab_size;
  std::vector<model::TokenId> eos;
  std::once_flag trie_once;
  std::shared_ptr<const constrain::TokenTrie> trie;

  // The engine thread's own.
  Batcher batcher;
  const std::int64_t max_context;
  nn::Transformer transformer;
  std::vector<float> logits;
  std::vector<SampledToken> sampled;
  std::int64_t generated = 0, steps = 0;

  // Guarded by `mutex`.
  mutable std::mutex mutex;
  std::condition_variable work, idle;
  std::vector<std::unique_ptr<Sequence>> incoming;
  std::vector<std::uint64_t> cancelled;
  std::shared_ptr<const nn::TransformerWeights> next_weights;
  bool next_keeps_kv = false;
  bool draining = false, stopping = false;
  std::uint64_t last_id = 0;
  EngineStats stats;

  std::thread thread;
};

Status Engine::Impl::check(const GenerationRequest& request) const {
  WEFT_TRY(validate(request.sampling));
  const auto size = static_cast<std::int64_t>(request.prompt.size());
  if (size == 0) return fail(ErrorCode::kInvalidArgument, "the prompt has no tokens");
  if (size >= max_context) {
    return fail(ErrorCode::kInvalidArgument,
                "the prompt has {} tokens, but prompt and reply together can have at most {}; "
                "shorten it",
                size, max_context);
  }
  for (const model::TokenId id : request.prompt) {
    if (id < 0 || id >= vocab_size) {
      return fail(ErrorCode::kInvalidArgument,
                  "prompt token {} is outside the vocabulary of {} tokens", id, vocab_size);
    }
  }
  if (const auto& constraint = request.sampling.constraint) {
    if (request.sampling.ignore_eos) {
      return fail(ErrorCode::kInvalidArgument,
                  "ignore_eos goes against a constraint, which says where the reply ends");
    }
    if (constraint->trie().vocab_size() != vocab_size) {
      return fail(ErrorCode::kInvalidArgument,
                  "the constraint was made for a vocabulary of {} tokens, the model has {}",
                  constraint->trie().vocab_size(), vocab_size);
    }
  }
  if (!tokenizer && !request.sampling.stop.empty()) {
    return fail(ErrorCode::kInvalidArgument, "stop strings need a tokenizer");
  }
  return {};
}

void Engine::Impl::take_inbox() {
  std::vector<std::unique_ptr<Sequence>> arrived;
  std::vector<std::uint64_t> gone;
  std::shared_ptr<const nn::TransformerWeights> weights;
  bool keep_kv = false;
  {
    const std::lock_guard lock(mutex);
    arrived.swap(incoming);
    gone.swap(cancelled);
    weights = std::exchange(next_weights, nullptr);
    keep_kv = next_keeps_kv;
    // Still counted as waiting until the batcher's own figures are published.
    stats.waiting += static_cast<std::int64_t>(arrived.size());
  }
  if (weights) {
    transformer.set_weights(std::move(weights));
    batcher.weights_changed(keep_kv);
  }
  for (auto& sequence : arrived) batcher.enqueue(std::move(sequence));
  for (const std::uint64_t id : gone) {
    if (auto sequence = batcher.remove(id)) end(std::move(sequence), FinishReason::kCancelled);
  }
}

void Engine::Impl::publish() {
  const std::lock_guard lock(mutex);
  batcher.fill(stats);
  stats.requests_total = static_cast<std::int64_t>(last_id);
  stats.generated_tokens_total = generated;
  stats.steps_total = steps;
  if (batcher.empty() && incoming.empty()) idle.notify_all();
}

void Engine::Impl::end(std::unique_ptr<Sequence> sequence, FinishReason reason) {
  TokenEvent event;
  event.request = sequence->id;
  event.finish = reason;
  if (sequence->decoder) {
    event.text = sequence->stop.push(sequence->decoder->finish());
    event.text += sequence->stop.finish();
  }
  if (sequence->request.on_event) sequence->request.on_event(event);
}

// One new token of one sequence: text, stop conditions, event.
void Engine::Impl::advance(Sequence& sequence, SampledToken token) {
  TokenEvent event;
  event.request = sequence.id;
  if (token.token < 0) {
    event.finish = FinishReason::kError;
    event.error = sequence.constraint_error;
  }
  if (token.token < 0 && event.error.empty()) {
    event.error = "the model gave no finite logit at position " + std::to_string(sequence.size()) +
                  ": its weights are damaged, or its activations overflow";
  }
  if (token.token < 0) {
    // The sequence must outlive its event.
    const auto ended = batcher.remove(sequence.id);
    if (sequence.request.on_event) sequence.request.on_event(event);
    return;
  }
  ++generated;
  const SamplingParams& params = sequence.request.sampling;
  const model::TokenId id = token.token;
  sequence.tokens.push_back(id);
  event.token = std::move(token);
  if (sequence.constraint && !sequence.constraint->accept(id)) {
    event.token = {};
    event.finish = FinishReason::kError;
    event.error = "the reply nests deeper than its grammar is followed";
    const auto ended = batcher.remove(sequence.id);
    if (ended->request.on_event) ended->request.on_event(event);
    return;
  }
  const bool ends = !params.ignore_eos && std::ranges::find(eos, id) != eos.end();
  if (tokenizer) {
    if (!sequence.decoder) {
      sequence.decoder.emplace(tokenizer);
      // Text that continues a prompt starts as it stands, with its space; bytes that the
      // prompt's last token leaves waiting for others are the prompt's.
      if (sequence.prompt_tokens > 0) {
        sequence.decoder->push(sequence.prompt().back());
        sequence.decoder->finish();
      }
    }
    if (!ends) event.text = sequence.stop.push(sequence.decoder->push(id));
  }
  const bool whole = sequence.constraint && sequence.constraint->complete();
  if (ends || whole || sequence.stop.stopped()) {
    event.finish = FinishReason::kStop;
  } else if (sequence.reply_tokens() >= params.max_tokens || sequence.size() >= max_context) {
    event.finish = FinishReason::kLength;
  }
  if (event.finish == FinishReason::kNone) {
    if (sequence.request.on_event) sequence.request.on_event(event);
    return;
  }
  if (sequence.decoder && !sequence.stop.stopped()) {
    event.text += sequence.stop.push(sequence.decoder->finish());
    // What is held back may have become a stop string with its last character.
    if (sequence.stop.stopped()) event.finish = FinishReason::kStop;
    event.text += sequence.stop.finish();
  }
  const auto ended = batcher.remove(sequence.id);
  if (ended->request.on_event) ended->request.on_event(event);
}

bool Engine::Impl::step() {
  take_inbox();
  if (batcher.empty()) {
    publish();
    return false;
  }
  batcher.plan();
  WEFT_CHECK(!batcher.rows().empty(), "a step without rows");
  transformer.forward(batcher.rows(), batcher.page_tables(), batcher.kv(), logits);
  batcher.finish_step();
  ++steps;

  const std::vector<Sequence*> sampling = batcher.sampling();
  sampled.assign(sampling.size(), {});
  pool.parallel_for(
      static_cast<std::int64_t>(sampling.size()), 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const auto at = static_cast<std::size_t>(i);
          Sequence& sequence = *sampling[at];
          std::span<const std::uint64_t> allowed;
          if (sequence.constraint) {
            const auto mask = sequence.constraint->allowed();
            if (!mask) {
              sequence.constraint_error = mask.error().message;
              continue;
            }
            allowed = *mask;
          }
          sampled[at] = sample(std::span(logits).subspan(at * static_cast<std::size_t>(vocab_size),
                                                         static_cast<std::size_t>(vocab_size)),
                               sequence.request.sampling, sequence.prompt(), sequence.reply(),
                               sequence.size(), allowed);
        }
      });
  for (std::size_t i = 0; i < sampling.size(); ++i) advance(*sampling[i], std::move(sampled[i]));
  publish();
  return true;
}

void Engine::Impl::run_thread() {
  for (;;) {
    {
      std::unique_lock lock(mutex);
      // The deadline bounds a wait whose wake-up got lost; it costs a look a second.
      while (!stopping && incoming.empty() && cancelled.empty() && !next_weights &&
             stats.running + stats.waiting == 0) {
        work.wait_for(lock, std::chrono::seconds(1));
      }
      if (stopping) return;
    }
    step();
  }
}

Engine::Engine(std::shared_ptr<const nn::TransformerWeights> weights,
               std::shared_ptr<const model::Tokenizer> tokenizer, EngineOptions options,
               ThreadPool& pool)
    : impl_(std::make_unique<Impl>(std::move(weights), std::move(tokenizer), options, pool)) {}

Engine::~Engine() { stop(); }

Result<std::uint64_t> Engine::submit(GenerationRequest request) {
  WEFT_TRY(impl_->check(request));
  auto sequence = std::make_unique<Sequence>(std::move(request));
  std::uint64_t id = 0;
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->draining || impl_->stopping) {
      return fail(ErrorCode::kUnavailable, "the engine is shutting down");
    }
    const std::int64_t queued =
        impl_->stats.waiting + static_cast<std::int64_t>(impl_->incoming.size());
    if (queued >= impl_->options.max_queue) {
      return fail(ErrorCode::kResourceExhausted,
                  "{} requests wait already, which is the limit; try again later", queued);
    }
    id = sequence->id = ++impl_->last_id;
    impl_->incoming.push_back(std::move(sequence));
  }
  impl_->work.notify_one();
  return id;
}

void Engine::cancel(std::uint64_t request) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->cancelled.push_back(request);
  }
  impl_->work.notify_one();
}

bool Engine::step() { return impl_->step(); }

void Engine::start() {
  WEFT_CHECK(!impl_->thread.joinable(), "the engine was started twice");
  impl_->thread = std::thread([this] { impl_->run_thread(); });
}

Status Engine::drain(double seconds) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(seconds));
  {
    std::unique_lock lock(impl_->mutex);
    impl_->draining = true;
    const auto done = [this] {
      return impl_->incoming.empty() && impl_->stats.running + impl_->stats.waiting == 0;
    };
    if (impl_->thread.joinable()) {
      if (impl_->idle.wait_until(lock, deadline, done)) return {};
      return fail(ErrorCode::kDeadlineExceeded, "{} requests were still running after {} s",
                  impl_->stats.running + impl_->stats.waiting, seconds);
    }
  }
  while (impl_->step()) {
    if (Clock::now() >= deadline && !impl_->batcher.empty()) {
      return fail(ErrorCode::kDeadlineExceeded, "requests were still running after {} s", seconds);
    }
  }
  return {};
}

void Engine::stop() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->work.notify_all();
  if (impl_->thread.joinable()) impl_->thread.join();
  impl_->take_inbox();
  while (auto sequence = impl_->batcher.remove_any()) {
    impl_->end(std::move(sequence), FinishReason::kCancelled);
  }
  impl_->publish();
}

void Engine::set_weights(std::shared_ptr<const nn::TransformerWeights> weights, bool keep_kv) {
  {
    const std::lock_guard lock(impl_->mutex);
    // Two changes between steps: the first one's keys and values may already be lost.
    impl_->next_keeps_kv = keep_kv && (!impl_->next_weights || impl_->next_keeps_kv);
    impl_->next_weights = std::move(weights);
  }
  impl_->work.notify_one();
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(impl_->mutex);
  EngineStats stats = impl_->stats;
  stats.waiting += static_cast<std::int64_t>(impl_->incoming.size());
  stats.requests_total = static_cast<std::int64_t>(impl_->last_id);
  return stats;
}

std::int64_t Engine::max_context() const { return impl_->max_context; }

std::shared_ptr<const constrain::TokenTrie> Engine::token_trie() const {
  if (!impl_->tokenizer) return nullptr;
  std::call_once(impl_->trie_once, [this] {
    impl_->trie = std::make_shared<const constrain::TokenTrie>(*impl_->tokenizer, impl_->vocab_size,
                                                               impl_->eos);
  });
  return impl_->trie;
}

Result<std::vector<Completion>> generate(Engine& engine, std::vector<GenerationRequest> requests) {
  std::vector<Completion> completions(requests.size());
  std::size_t ended = 0, next = 0;
  std::vector<std::uint64_t> ids;
  while (ended < requests.size()) {
    for (; next < requests.size(); ++next) {
      GenerationRequest request = std::move(requests[next]);
      Completion& completion = completions[next];
      const auto on_event = request.on_event;
      request.on_event = [&completion, &ended, on_event](const TokenEvent& event) {
        if (event.token.token >= 0) completion.tokens.push_back(event.token);
        completion.text += event.text;
        if (event.finish != FinishReason::kNone) {
          completion.finish = event.finish;
          completion.error = event.error;
          ++ended;
        }
        if (on_event) on_event(event);
      };
      GenerationRequest copy = request;
      const auto id = engine.submit(std::move(request));
      if (id) {
        ids.push_back(*id);
        continue;
      }
      if (id.error().code == ErrorCode::kResourceExhausted && engine.stats().waiting > 0) {
        // The queue is full: this one comes again after a step.
        copy.on_event = on_event;
        requests[next] = std::move(copy);
        break;
      }
      for (const std::uint64_t submitted : ids) engine.cancel(submitted);
      engine.step();
      return std::unexpected(id.error().in(fmt::format("request {}", next)));
    }
    engine.step();
  }
  return completions;
}

}  // namespace weft::serve
