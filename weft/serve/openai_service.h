// The OpenAI API over an engine: routes, generations, streams, metrics.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "weft/base/metrics.h"
#include "weft/model/chat_template.h"
#include "weft/model/tokenizer.h"
#include "weft/serve/engine.h"
#include "weft/serve/http_server.h"
#include "weft/serve/openai_api.h"

namespace weft::serve {

struct OpenAiServiceOptions {
  std::string model_name;
  std::string api_key;       // empty = none is asked for
  std::int64_t created = 0;  // Unix seconds, for /v1/models
  int retry_after_seconds = 2;
};

// Thread-safe. `engine` must have been start()ed and must outlive the service and
// every exchange that it was given.
class OpenAiService {
 public:
  OpenAiService(Engine& engine, std::shared_ptr<const model::Tokenizer> tokenizer,
                std::optional<model::ChatTemplate> chat_template, OpenAiServiceOptions options);
  ~OpenAiService();

  // For HttpServer::Hooks.
  std::optional<HttpResponse> gate(const HttpRequest& request);
  void handle(const std::shared_ptr<HttpExchange>& exchange);
  void log_access(const HttpRequest& request, int status, double seconds, std::size_t bytes);

  // From now on new work is refused with 503; what runs goes on.
  void start_draining() { draining_ = true; }

 private:
  struct Counters;
  void generate(const std::shared_ptr<HttpExchange>& exchange, bool chat);
  ApiResult<std::vector<std::vector<model::TokenId>>> encode(const ApiRequest& request,
                                                             bool chat) const;
  ApiResult<bool> fit_context(ApiRequest& request,
                              const std::vector<std::vector<model::TokenId>>& prompts) const;
  void tokenize(HttpExchange& exchange) const;
  void detokenize(HttpExchange& exchange) const;
  HttpResponse models(const std::string& path) const;
  HttpResponse metrics();
  HttpResponse health() const;
  HttpResponse error_response(const ApiError& error) const;
  bool authorized(const HttpRequest& request) const;

  Engine& engine_;
  std::shared_ptr<const model::Tokenizer> tokenizer_;
  std::optional<model::ChatTemplate> chat_template_;
  OpenAiServiceOptions options_;
  std::string key_digest_;
  std::atomic<bool> draining_{false};
  Metrics metrics_;
  std::unique_ptr<Counters> counters_;
};

}  // namespace weft::serve
