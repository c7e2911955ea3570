// Engine: one served copy of a model. Continuous batching over a paged KV pool.
// The life of a request is drawn in docs/engine.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/base/thread_pool.h"
#include "weft/model/tokenizer.h"
#include "weft/nn/transformer.h"
#include "weft/serve/sampling.h"

namespace weft::serve {

namespace constrain {
class TokenTrie;
}

enum class FinishReason { kNone, kStop, kLength, kCancelled, kError };
std::string_view to_string(FinishReason reason);  // "stop", "length", ...

// One step of one request. `text` is what decoding adds, held back while it may
// be the start of a stop string or of a character. The last event has a finish
// reason; its token is -1 if it ended without a new one. A token that ends the
// reply (EOS) is reported, without text.
struct TokenEvent {
  std::uint64_t request = 0;
  SampledToken token;
  std::string text;
  FinishReason finish = FinishReason::kNone;
  std::string error;  // with kError
};

struct GenerationRequest {
  std::vector<model::TokenId> prompt;
  SamplingParams sampling;
  // Called on the engine's thread, once for each token and at least once. May call
  // submit and cancel; must not block for long.
  std::function<void(const TokenEvent&)> on_event;
};

struct EngineOptions {
  std::int64_t max_batch_tokens = 512;  // rows of one forward pass
  std::int64_t max_sequences = 256;     // running at once
  std::int64_t kv_pages = 0;            // 0 = from kv_bytes
  std::int64_t kv_bytes = std::int64_t{2} << 30;
  std::int64_t max_queue = 1024;  // more is refused with kResourceExhausted
  std::int64_t max_context = 0;   // 0 = the model's; the pool must hold one such sequence
  bool share_prefixes = true;     // run a common prefix once (the bits are the same without)
};

struct EngineStats {
  std::int64_t running = 0, waiting = 0;
  // Pages that sequences hold, and those that only wait to be found again.
  std::int64_t kv_pages = 0, kv_pages_used = 0, kv_pages_cached = 0;
  std::int64_t prompt_tokens_total = 0, generated_tokens_total = 0, requests_total = 0,
               preemptions_total = 0, steps_total = 0;
  std::int64_t computed_tokens_total = 0;  // rows of all forward passes
  std::int64_t shared_tokens_total = 0;    // prompt tokens taken from other sequences
};

// Results do not depend on what else runs: a request's tokens and log-probabilities
// are the same bits alone or in any batch, for any max_batch_tokens, number of
// threads, preemption and with or without shared prefixes.
//
// Thread-safe: submit, cancel, set_weights and stats from any thread. Work happens in
// step(), called either by one thread of the caller's or by start()'s own.
class Engine {
 public:
  // `tokenizer` may be null: events have no text, stop strings are refused, and
  // replies end at the configuration's EOS tokens only. `pool` must outlive the engine.
  Engine(std::shared_ptr<const nn::TransformerWeights> weights,
         std::shared_ptr<const model::Tokenizer> tokenizer, EngineOptions options,
         ThreadPool& pool);
  ~Engine();  // as stop()

  // Refuses an empty or too long prompt, ids outside the vocabulary and bad sampling
  // (kInvalidArgument), a full queue (kResourceExhausted) and a draining engine
  // (kUnavailable). Requests start in the order of submission.
  Result<std::uint64_t> submit(GenerationRequest request);
  // The request ends with kCancelled at the next step; unknown ids are ignored.
  void cancel(std::uint64_t request);
  // Runs one iteration; false if there was nothing to do.
  bool step();
  // Steps on an own thread that sleeps when idle, until stop(). drain() refuses new
  // requests and returns when all running ones ended or the deadline passed
  // (kDeadlineExceeded); without start() it steps by itself.
  void start();
  Status drain(double seconds);
  // Ends the thread and every request (kCancelled).
  void stop();

  // From the next step on: new weights (of the same configuration) for everything
  // that follows. Keys and values of running requests are computed again with them,
  // or kept as they are if `keep_kv`.
  void set_weights(std::shared_ptr<const nn::TransformerWeights> weights, bool keep_kv = false);
  EngineStats stats() const;
  // The longest prompt plus reply.
  std::int64_t max_context() const;
  // The vocabulary as constraints need it; made at the first call (some 50 ms). Null
  // without a tokenizer.
  std::shared_ptr<const constrain::TokenTrie> token_trie() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A whole reply, for callers that wait for it.
struct Completion {
  std::vector<SampledToken> tokens;  // with the EOS, if it ended by one
  std::string text;
  FinishReason finish = FinishReason::kNone;
  std::string error;  // with kError
};
// Submits all requests and steps `engine` (which must not have been start()ed) until
// every one ended; completions in the order of the requests. `on_event` of each
// request is called too, if it is set. A refused request's error ends the call.
Result<std::vector<Completion>> generate(Engine& engine, std::vector<GenerationRequest> requests);

}  // namespace weft::serve
