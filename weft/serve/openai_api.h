// The OpenAI API's requests and answers as data: pure functions between JSON text
// and structs, without a model, a socket or a clock. docs/protocols/http-api.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/serve/constrain/constraint.h"
#include "weft/serve/sampling.h"

namespace weft::serve {

// An error as the API shows it: {"error": {message, type, param, code}}.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // the field that is wrong; empty = null
  std::string code;   // "model_not_found", "context_length_exceeded", ...; empty = null
};
template <class T>
using ApiResult = std::expected<T, ApiError>;

std::string error_type(int status);             // "invalid_request_error", "server_error", ...
std::string error_body(const ApiError& error);  // one line of JSON
ApiError to_api_error(const Error& error);      // by its code: 400, 404, 429, 503, 500

// Bounds that a request is refused beyond.
inline constexpr std::int64_t kMaxChoices = 128;  // n times prompts
inline constexpr std::int64_t kMaxApiLogprobs = 20;
inline constexpr std::size_t kMaxStops = 16;
inline constexpr std::size_t kMaxStopBytes = 1024;

// A prompt of /v1/completions: text, or token ids.
struct ApiPrompt {
  std::string text;
  std::vector<model::TokenId> ids;
  bool is_ids = false;
};

// What both endpoints ask for.
struct ApiRequest {
  std::string model;        // empty = the one that is served
  SamplingParams sampling;  // max_tokens 0 = not given
  std::optional<std::int64_t> seed;
  std::int64_t n = 1;
  bool stream = false, include_usage = false;
  bool want_logprobs = false;
  // Of response_format, guided_*, structured_outputs or grammar, and which of them.
  std::optional<constrain::ConstraintSpec> constraint;
  std::string constraint_field;
  // /v1/completions
  std::vector<ApiPrompt> prompts;
  bool echo = false;
  // /v1/chat/completions
  Json messages = Json::array();             // normalised: content is text, arguments are objects
  Json template_variables = Json::object();  // tools, chat_template_kwargs
  bool add_generation_prompt = true;
};

// `body` is the request's text. Unknown fields are ignored; fields that Weft knows
// and does not do (tool_choice "required", suffix) are
// refused by name rather than ignored.
ApiResult<ApiRequest> parse_completion_request(std::string_view body);
ApiResult<ApiRequest> parse_chat_request(std::string_view body);
// {"prompt": text, "add_special_tokens": bool} and {"tokens": [ids]}.
struct TokenizeRequest {
  std::string text;
  bool add_special = true;
};
ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body);
ApiResult<std::vector<model::TokenId>> parse_detokenize_request(std::string_view body);

// One sampled token with its text, for the log-probability shapes.
struct ShownLogprob {
  std::string bytes;
  float logprob = 0;
  std::vector<std::pair<std::string, float>> top;
};
// choices[].logprobs of /v1/chat/completions.
Json chat_logprobs(const std::vector<ShownLogprob>& tokens);
// choices[].logprobs of /v1/completions; `offset` is where the first token's text
// begins, in characters of the returned text.
Json completion_logprobs(const std::vector<ShownLogprob>& tokens, std::int64_t offset);

struct ApiUsage {
  std::int64_t prompt_tokens = 0, completion_tokens = 0;
};
Json usage_json(const ApiUsage& usage);

}  // namespace weft::serve
