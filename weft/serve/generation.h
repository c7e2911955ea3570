// One API request for text on its way: from the engine's events to the answer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/serve/engine.h"
#include "weft/serve/http_server.h"
#include "weft/serve/openai_api.h"

namespace weft::serve {

struct GenerationContext {
  std::string model_name;
  std::int64_t created = 0;
  bool chat = false;
  std::int64_t prompt_tokens = 0;
  std::shared_ptr<const model::Tokenizer> tokenizer;
  std::function<void(double seconds)> on_first_token;
  std::function<void(double seconds)> on_token;  // since the one before; negative for the first
  std::function<void(double seconds, bool cancelled)> on_end;
};

// Submits n replies to each prompt and answers `exchange` as they come (streamed or
// whole); cancels them when the client goes away. Called on the exchange's strand.
// Returns the engine's error if it refuses, with nothing left running.
std::optional<Error> start_generation(Engine& engine, const std::shared_ptr<HttpExchange>& exchange,
                                      ApiRequest request,
                                      std::vector<std::vector<model::TokenId>> prompts,
                                      GenerationContext context);

}  // namespace weft::serve
