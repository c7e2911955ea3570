// Answers of the OpenAI API.
#include <algorithm>

#include "weft/serve/openai_api.h"

namespace weft::serve {
namespace {

// JSON has no infinity: what a token that cannot be sampled is shown with.
constexpr float kLeastLogprob = -9999.0F;

// A token's bytes may be a part of a character: the text shows U+FFFD then, and
// `bytes` has the truth. dump_json() replaces what is not UTF-8.
Json chat_token(const std::string& bytes, float logprob) {
  Json out = Json::object();
  out["token"] = bytes;
  out["logprob"] = std::max(logprob, kLeastLogprob);
  Json list = Json::array();
  for (char c : bytes) list.push_back(static_cast<int>(static_cast<unsigned char>(c)));
  out["bytes"] = std::move(list);
  return out;
}

std::int64_t count_characters(const std::string& bytes) {
  std::int64_t count = 0;
  for (char c : bytes) count += (static_cast<unsigned char>(c) & 0xc0U) != 0x80U ? 1 : 0;
  return count;
}

}  // namespace

std::string error_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

std::string error_body(const ApiError& error) {
  Json inner = Json::object();
  inner["message"] = error.message;
  inner["type"] = error_type(error.status);
  inner["param"] = error.param.empty() ? Json() : Json(error.param);
  inner["code"] = error.code.empty() ? Json() : Json(error.code);
  Json out = Json::object();
  out["error"] = std::move(inner);
  return dump_json(out);
}

ApiError to_api_error(const Error& error) {
  int status = 500;
  std::string code;
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kOutOfRange:
    case ErrorCode::kUnsupported:
      status = 400;
      break;
    case ErrorCode::kNotFound:
      status = 404;
      break;
    case ErrorCode::kResourceExhausted:
      status = 429;
      code = "queue_full";
      break;
    case ErrorCode::kUnavailable:
      status = 503;
      code = "draining";
      break;
    default:
      break;
  }
  return {status, error.message, "", std::move(code)};
}

Json chat_logprobs(const std::vector<ShownLogprob>& tokens) {
  Json content = Json::array();
  for (const auto& token : tokens) {
    Json entry = chat_token(token.bytes, token.logprob);
    Json top = Json::array();
    for (const auto& [bytes, logprob] : token.top) top.push_back(chat_token(bytes, logprob));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  Json out = Json::object();
  out["content"] = std::move(content);
  out["refusal"] = nullptr;
  return out;
}

Json completion_logprobs(const std::vector<ShownLogprob>& tokens, std::int64_t offset) {
  Json out = Json::object();
  Json texts = Json::array(), logprobs = Json::array(), tops = Json::array(),
       offsets = Json::array();
  for (const auto& token : tokens) {
    texts.push_back(token.bytes);
    logprobs.push_back(std::max(token.logprob, kLeastLogprob));
    Json top = Json::object();
    for (const auto& [bytes, logprob] : token.top) top[bytes] = std::max(logprob, kLeastLogprob);
    if (!token.top.empty() && !top.contains(token.bytes)) top[token.bytes] = token.logprob;
    tops.push_back(token.top.empty() ? Json() : std::move(top));
    offsets.push_back(offset);
    offset += count_characters(token.bytes);
  }
  out["tokens"] = std::move(texts);
  out["token_logprobs"] = std::move(logprobs);
  out["top_logprobs"] = std::move(tops);
  out["text_offset"] = std::move(offsets);
  return out;
}

Json usage_json(const ApiUsage& usage) {
  Json out = Json::object();
  out["prompt_tokens"] = usage.prompt_tokens;
  out["completion_tokens"] = usage.completion_tokens;
  out["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  return out;
}

}  // namespace weft::serve
