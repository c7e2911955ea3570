// Sequence: a request inside the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/model/tokenizer.h"
#include "weft/serve/constrain/constraint.h"
#include "weft/serve/engine.h"
#include "weft/serve/prefix_cache.h"
#include "weft/serve/stop_matcher.h"

namespace weft::serve {

// Touched by the engine's thread alone once it was submitted.
struct Sequence {
  std::uint64_t id = 0;  // ascending with the order of submission
  GenerationRequest request;
  std::vector<model::TokenId> tokens;  // prompt, then reply
  std::int64_t prompt_tokens = 0;
  // Positions [0, computed) have their keys and values in `pages`; the rest of
  // `tokens` is still to run.
  std::int64_t computed = 0;
  std::vector<std::int32_t> pages;
  std::vector<PrefixCache::Key> page_keys;  // of the pages that are known to the cache
  std::int64_t placed = 0;                  // rows in the batch of this step
  bool kept_kv = false;                     // keys and values of older weights: not to be shared
  bool counted = false;                     // its prompt is in the statistics
  std::optional<model::StreamDecoder> decoder;
  StopMatcher stop;
  std::unique_ptr<constrain::ConstraintState> constraint;  // null = the reply is free
  std::string constraint_error;                            // why it cannot go on

  explicit Sequence(GenerationRequest from)
      : request(std::move(from)),
        tokens(request.prompt),
        prompt_tokens(static_cast<std::int64_t>(request.prompt.size())),
        stop(request.sampling.stop) {
    if (request.sampling.constraint) {
      constraint = std::make_unique<constrain::ConstraintState>(request.sampling.constraint);
    }
  }

  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t remaining() const { return size() - computed; }
  std::int64_t reply_tokens() const { return size() - prompt_tokens; }
  std::span<const model::TokenId> prompt() const {
    return std::span(tokens).first(static_cast<std::size_t>(prompt_tokens));
  }
  std::span<const model::TokenId> reply() const {
    return std::span(tokens).subspan(static_cast<std::size_t>(prompt_tokens));
  }
};

}  // namespace weft::serve
