// Any body is a request that keeps the API's bounds, or an error with a sentence.
#include <cmath>
#include <cstdint>

#include "weft/serve/openai_api.h"

namespace {

void check(const weft::serve::ApiResult<weft::serve::ApiRequest>& request) {
  if (!request) {
    WEFT_CHECK(request.error().status >= 400 && request.error().status < 500);
    WEFT_CHECK(!request.error().message.empty());
    WEFT_CHECK(weft::parse_json(weft::serve::error_body(request.error()), "error").has_value());
    return;
  }
  const auto& sampling = request->sampling;
  WEFT_CHECK(request->n >= 1 && request->n <= weft::serve::kMaxChoices);
  WEFT_CHECK(std::isfinite(sampling.temperature) && sampling.temperature >= 0);
  WEFT_CHECK(sampling.top_p > 0 && sampling.top_p <= 1);
  WEFT_CHECK(sampling.max_tokens >= 0);
  for (const auto& stop : sampling.stop) WEFT_CHECK(!stop.empty());
  WEFT_CHECK(weft::serve::validate(sampling).has_value() || sampling.max_tokens == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  check(weft::serve::parse_completion_request(body));
  check(weft::serve::parse_chat_request(body));
  (void)weft::serve::parse_tokenize_request(body);
  (void)weft::serve::parse_detokenize_request(body);
  return 0;
}
