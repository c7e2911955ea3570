// Engine: one served copy of a model. Continuous batching over a paged KV pool.
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

enum class FinishReason { kNone, kStop, kLength, kCancelled, kError };
std::string_view to_string(FinishReason reason);   // "stop", "length", ...

// One step of one request. `text` is what decoding adds, held back while it may
// be the start of a stop string or of a character. The last event has a finish
// reason; its token is -1 if it ended without a new one.
struct TokenEvent {
  std::uint64_t request = 0;
  SampledToken token;
  std::string text;
  FinishReason finish = FinishReason::kNone;
  std::string error;               // with kError
};

struct GenerationRequest {
  std::vector<model::TokenId> prompt;
  SamplingParams sampling;
  std::function<void(const TokenEvent&)> on_event;   // called on the engine's thread
};

struct EngineOptions {
  std::int64_t max_batch_tokens = 512;    // rows of one forward pass
  std::int64_t max_sequences = 256;       // running at once
  std::int64_t kv_pages = 0;              // 0 = from kv_bytes
  std::int64_t kv_bytes = std::int64_t{2} << 30;
  std::int64_t max_queue = 1024;          // more is refused with kResourceExhausted
  std::int64_t max_context = 0;           // 0 = the model's
};

struct EngineStats {
  std::int64_t running = 0, waiting = 0, kv_pages_used = 0, kv_pages = 0;
  std::int64_t prompt_tokens_total = 0, generated_tokens_total = 0, requests_total = 0,
               preemptions_total = 0, steps_total = 0;
};

// Thread-safe: submit, cancel and stats from any thread. Work happens in step(),
// called either by one thread of the caller's or by start()'s own.
class Engine {
 public:
  Engine(std::shared_ptr<const nn::TransformerWeights> weights,
         std::shared_ptr<const model::Tokenizer> tokenizer, EngineOptions options,
         ThreadPool& pool);
  ~Engine();

  // Refuses an empty or too long prompt, ids outside the vocabulary, bad sampling.
  Result<std::uint64_t> submit(GenerationRequest request);
  void cancel(std::uint64_t request);
  // Runs one iteration; false if there was nothing to do.
  bool step();
  // Steps on an own thread that sleeps when idle, until stop(). drain() refuses new
  // requests and returns when all running ones ended or the deadline passed.
  void start();
  Status drain(double seconds);
  void stop();

  // Between steps: new weights for everything that follows; kv of running
  // requests is kept only if `keep_kv`.
  void set_weights(std::shared_ptr<const nn::TransformerWeights> weights, bool keep_kv = false);
  EngineStats stats() const;
  std::int64_t max_context() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::serve
