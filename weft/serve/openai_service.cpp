#include "weft/serve/openai_service.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <array>
#include <ctime>
#include <random>

#include "weft/base/log.h"
#include "weft/serve/chat_page.h"
#include "weft/serve/generation.h"

namespace weft::serve {
namespace {

struct Route {
  std::string_view path;
  std::string_view method;
  bool open;  // without a key
};
constexpr std::array<Route, 8> kRoutes = {{{"/", "GET", true},
                                           {"/health", "GET", true},
                                           {"/metrics", "GET", true},
                                           {"/v1/models", "GET", false},
                                           {"/v1/completions", "POST", false},
                                           {"/v1/chat/completions", "POST", false},
                                           {"/tokenize", "POST", false},
                                           {"/detokenize", "POST", false}}};
constexpr std::string_view kModelPrefix = "/v1/models/";

std::string digest(std::string_view text) {
  std::string out(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(out.data()));
  return out;
}

bool is_json(std::string_view content_type) {
  std::string lower;
  for (char c : content_type.substr(0, content_type.find(';'))) {
    if (c != ' ') lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  }
  return lower == "application/json" ||
         (lower.starts_with("application/") && lower.ends_with("+json"));
}

HttpResponse json_response(const Json& body) {
  HttpResponse out;
  out.body = dump_json(body);
  return out;
}

}  // namespace

struct OpenAiService::Counters {
  explicit Counters(Metrics& metrics)
      : generations(
            metrics.counter("weft_generations_total", "Requests for text that were accepted")),
        cancelled(metrics.counter("weft_generations_cancelled_total",
                                  "Generations whose client went away")),
        prompt_tokens(metrics.counter("weft_prompt_tokens_total", "Tokens of accepted prompts")),
        reply_tokens(metrics.counter("weft_reply_tokens_total", "Tokens sampled")),
        first_token(metrics.histogram("weft_time_to_first_token_seconds",
                                      "From the request to its first token",
                                      exponential_bounds(0.005, 2, 14))),
        between_tokens(metrics.histogram("weft_inter_token_seconds",
                                         "Between two tokens of a reply",
                                         exponential_bounds(0.001, 2, 12))),
        whole(metrics.histogram("weft_request_seconds", "From the request to the end of its reply",
                                exponential_bounds(0.01, 2, 15))) {}
  Counter& generations;
  Counter& cancelled;
  Counter& prompt_tokens;
  Counter& reply_tokens;
  BucketMetric& first_token;
  BucketMetric& between_tokens;
  BucketMetric& whole;
};

OpenAiService::OpenAiService(Engine& engine, std::shared_ptr<const model::Tokenizer> tokenizer,
                             std::optional<model::ChatTemplate> chat_template,
                             OpenAiServiceOptions options)
    : engine_(engine),
      tokenizer_(std::move(tokenizer)),
      chat_template_(std::move(chat_template)),
      options_(std::move(options)),
      counters_(std::make_unique<Counters>(metrics_)) {
  if (!options_.api_key.empty()) key_digest_ = digest(options_.api_key);
}

OpenAiService::~OpenAiService() = default;

bool OpenAiService::authorized(const HttpRequest& request) const {
  if (key_digest_.empty()) return true;
  const std::string* header = request.header("authorization");
  constexpr std::string_view kScheme = "Bearer ";
  if (header == nullptr || !header->starts_with(kScheme)) return false;
  // Digests are of one length, so the time tells nothing about the key.
  const std::string given = digest(std::string_view(*header).substr(kScheme.size()));
  return CRYPTO_memcmp(given.data(), key_digest_.data(), key_digest_.size()) == 0;
}

HttpResponse OpenAiService::error_response(const ApiError& error) const {
  HttpResponse out;
  out.status = error.status;
  out.body = error_body(error);
  if (error.status == 429 || error.status == 503) {
    out.headers.emplace_back("Retry-After", std::to_string(options_.retry_after_seconds));
  }
  if (error.status == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
  return out;
}

std::optional<HttpResponse> OpenAiService::gate(const HttpRequest& request) {
  const std::string& path = request.path;
  const Route* route = nullptr;
  for (const auto& each : kRoutes) {
    if (each.path == path) route = &each;
  }
  static constexpr Route kOneModel{kModelPrefix, "GET", false};
  if (path.starts_with(kModelPrefix)) route = &kOneModel;
  if (route == nullptr) {
    return error_response(
        {404, fmt::format("there is nothing at {} {}", request.method, path.substr(0, 200)), "",
         "unknown_url"});
  }
  if (request.method != route->method && !(request.method == "HEAD" && route->method == "GET")) {
    auto out = error_response({405,
                               fmt::format("{} takes {}, not {}", path.substr(0, 200),
                                           route->method, request.method.substr(0, 20)),
                               "", "method_not_allowed"});
    out.headers.emplace_back("Allow", std::string(route->method));
    return out;
  }
  if (!route->open && !authorized(request)) {
    return error_response({401,
                           "the API key is missing or wrong; send \"Authorization: Bearer KEY\"",
                           "", "invalid_api_key"});
  }
  if (route->method != "POST") return std::nullopt;
  if (draining_) return error_response({503, "the server is shutting down", "", "draining"});
  const std::string* type = request.header("content-type");
  if (type != nullptr && !is_json(*type)) {
    return error_response(
        {415, fmt::format("the body must be application/json, not {}", type->substr(0, 80)), "",
         "unsupported_media_type"});
  }
  if (request.header("content-length") == nullptr &&
      request.header("transfer-encoding") == nullptr) {
    return error_response(
        {411, "the request has no body: send Content-Length", "", "length_required"});
  }
  return std::nullopt;
}

void OpenAiService::handle(const std::shared_ptr<HttpExchange>& exchange) {
  const std::string& path = exchange->request().path;
  if (path == "/v1/chat/completions") return generate(exchange, true);
  if (path == "/v1/completions") return generate(exchange, false);
  if (path == "/tokenize") return tokenize(*exchange);
  if (path == "/detokenize") return detokenize(*exchange);
  if (path == "/health") return exchange->respond(health());
  if (path == "/metrics") return exchange->respond(metrics());
  if (path == "/v1/models" || path.starts_with(kModelPrefix))
    return exchange->respond(models(path));
  HttpResponse page;
  page.content_type = "text/html; charset=utf-8";
  page.body = chat_page();
  // The page is self-contained; nothing that a model writes may load or run anything.
  page.headers.emplace_back(
      "Content-Security-Policy",
      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src "
      "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  page.headers.emplace_back("Cache-Control", "no-cache");
  exchange->respond(std::move(page));
}

void OpenAiService::log_access(const HttpRequest& request, int status, double seconds,
                               std::size_t bytes) {
  metrics_
      .counter("weft_http_requests_total", "Answers by status (499 = the client went away)",
               {{"status", std::to_string(status)}})
      .add();
  if (request.path == "/health" || request.path == "/metrics") {
    return log_debug("{} \"{} {}\" {} {:.1f} ms {} B {}", request.remote, request.method,
                     request.path, status, seconds * 1e3, bytes, request.id);
  }
  log_info("{} \"{} {}\" {} {:.1f} ms {} B {}", request.remote, request.method,
           request.path.substr(0, 200), status, seconds * 1e3, bytes, request.id);
}

HttpResponse OpenAiService::health() const {
  Json body = Json::object();
  body["status"] = draining_ ? "draining" : "ok";
  body["model"] = options_.model_name;
  HttpResponse out = json_response(body);
  if (draining_) out.status = 503;
  return out;
}

HttpResponse OpenAiService::models(const std::string& path) const {
  Json model = Json::object();
  model["id"] = options_.model_name;
  model["object"] = "model";
  model["created"] = options_.created;
  model["owned_by"] = "weft";
  model["max_model_len"] = engine_.max_context();
  if (path != "/v1/models") {
    const std::string id = path.substr(kModelPrefix.size());
    if (id != options_.model_name) {
      return error_response({404,
                             fmt::format("there is no model '{}' here; this server has '{}'",
                                         id.substr(0, 100), options_.model_name),
                             "model", "model_not_found"});
    }
    return json_response(model);
  }
  Json body = Json::object();
  body["object"] = "list";
  body["data"] = Json::array({std::move(model)});
  return json_response(body);
}

HttpResponse OpenAiService::metrics() {
  const EngineStats stats = engine_.stats();
  const auto set = [&](const char* name, const char* help, std::int64_t value) {
    metrics_.gauge(name, help).set(static_cast<double>(value));
  };
  set("weft_requests_running", "Sequences in the batch", stats.running);
  set("weft_requests_waiting", "Sequences in the queue", stats.waiting);
  set("weft_kv_pages", "Pages of the KV pool", stats.kv_pages);
  set("weft_kv_pages_used", "Pages that sequences hold", stats.kv_pages_used);
  set("weft_kv_pages_cached", "Pages kept for shared prefixes", stats.kv_pages_cached);
  set("weft_engine_steps", "Iterations of the engine", stats.steps_total);
  set("weft_engine_computed_tokens", "Rows of all forward passes", stats.computed_tokens_total);
  set("weft_engine_shared_tokens", "Prompt tokens taken from shared prefixes",
      stats.shared_tokens_total);
  set("weft_engine_preemptions", "Sequences that were put back", stats.preemptions_total);
  HttpResponse out;
  out.content_type = "text/plain; version=0.0.4; charset=utf-8";
  out.body = metrics_.prometheus();
  return out;
}

void OpenAiService::tokenize(HttpExchange& exchange) const {
  const auto request = parse_tokenize_request(exchange.request().body);
  if (!request) return exchange.respond(error_response(request.error()));
  const auto ids = tokenizer_->encode(
      request->text, {.add_special = request->add_special, .parse_special = false});
  Json body = Json::object();
  body["tokens"] = ids;
  body["count"] = ids.size();
  body["max_model_len"] = engine_.max_context();
  exchange.respond(json_response(body));
}

void OpenAiService::detokenize(HttpExchange& exchange) const {
  const auto ids = parse_detokenize_request(exchange.request().body);
  if (!ids) return exchange.respond(error_response(ids.error()));
  for (const auto id : *ids) {
    if (id >= tokenizer_->vocab_size()) {
      return exchange.respond(error_response(
          {400,
           fmt::format("token {} is outside the vocabulary of {}", id, tokenizer_->vocab_size()),
           "tokens", ""}));
    }
  }
  Json body = Json::object();
  body["prompt"] = tokenizer_->decode(*ids, false);
  exchange.respond(json_response(body));
}

ApiResult<std::vector<std::vector<model::TokenId>>> OpenAiService::encode(const ApiRequest& request,
                                                                          bool chat) const {
  std::vector<std::vector<model::TokenId>> out;
  if (!chat) {
    for (const auto& prompt : request.prompts) {
      auto ids = prompt.is_ids ? prompt.ids : tokenizer_->encode(prompt.text);
      if (ids.empty() && tokenizer_->bos() >= 0) ids.push_back(tokenizer_->bos());
      if (ids.empty()) {
        return std::unexpected(
            ApiError{400, "'prompt' is empty, and this model has no token to begin a text with",
                     "prompt", ""});
      }
      out.push_back(std::move(ids));
    }
    return out;
  }
  if (!chat_template_) {
    return std::unexpected(
        ApiError{400,
                 fmt::format("the model '{}' has no chat template; use /v1/completions",
                             options_.model_name),
                 "messages", "no_chat_template"});
  }
  Json variables = model::template_variables(*tokenizer_);
  for (const auto& [key, value] : request.template_variables.items()) variables[key] = value;
  const auto text =
      chat_template_->render(request.messages, request.add_generation_prompt, variables);
  if (!text) {
    return std::unexpected(ApiError{
        400, fmt::format("the chat template refuses this conversation: {}", text.error().message),
        "messages", "chat_template_error"});
  }
  // The template writes the special tokens itself.
  out.push_back(tokenizer_->encode(*text, {.add_special = false, .parse_special = true}));
  if (out[0].empty())
    return std::unexpected(
        ApiError{400, "the conversation renders to an empty prompt", "messages", ""});
  return out;
}

ApiResult<bool> OpenAiService::fit_context(
    ApiRequest& request, const std::vector<std::vector<model::TokenId>>& prompts) const {
  const std::int64_t limit = engine_.max_context();
  std::int64_t longest = 0;
  for (const auto& prompt : prompts)
    longest = std::max(longest, static_cast<std::int64_t>(prompt.size()));
  const std::int64_t asked = request.sampling.max_tokens;
  if (longest >= limit || asked > limit - longest) {
    return std::unexpected(
        ApiError{400,
                 fmt::format("this model's context is {} tokens; the prompt has {} and the reply "
                             "may take {}; shorten the prompt or lower max_tokens",
                             limit, longest, std::max<std::int64_t>(asked, 1)),
                 longest >= limit ? "messages" : "max_tokens", "context_length_exceeded"});
  }
  if (asked == 0) request.sampling.max_tokens = limit - longest;
  return true;
}

void OpenAiService::generate(const std::shared_ptr<HttpExchange>& exchange, bool chat) {
  const auto refuse = [&](const ApiError& error) { exchange->respond(error_response(error)); };
  auto request = chat ? parse_chat_request(exchange->request().body)
                      : parse_completion_request(exchange->request().body);
  if (!request) return refuse(request.error());
  if (!request->model.empty() && request->model != options_.model_name) {
    return refuse({404,
                   fmt::format("there is no model '{}' here; this server has '{}'",
                               request->model.substr(0, 100), options_.model_name),
                   "model", "model_not_found"});
  }
  auto prompts = encode(*request, chat);
  if (!prompts) return refuse(prompts.error());
  if (const auto fits = fit_context(*request, *prompts); !fits) return refuse(fits.error());
  if (request->constraint) {
    auto constraint = constrain::make_constraint(*request->constraint, engine_.token_trie());
    if (!constraint) {
      return refuse(
          {400, constraint.error().message, request->constraint_field, "invalid_constraint"});
    }
    request->sampling.constraint = std::move(*constraint);
  }
  request->sampling.seed =
      request->seed ? static_cast<std::uint64_t>(*request->seed)
                    : (std::uint64_t{std::random_device{}()} << 32U) | std::random_device{}();

  GenerationContext context;
  context.model_name = options_.model_name;
  context.created = std::time(nullptr);
  context.chat = chat;
  context.tokenizer = tokenizer_;
  context.on_first_token = [this](double seconds) { counters_->first_token.observe(seconds); };
  context.on_token = [this](double seconds) {
    counters_->reply_tokens.add();
    if (seconds >= 0) counters_->between_tokens.observe(seconds);
  };
  context.on_end = [this](double seconds, bool cancelled) {
    counters_->whole.observe(seconds);
    if (cancelled) counters_->cancelled.add();
  };
  for (const auto& prompt : *prompts)
    context.prompt_tokens += static_cast<std::int64_t>(prompt.size());
  const std::int64_t prompt_tokens = context.prompt_tokens;
  if (const auto failed = start_generation(engine_, exchange, std::move(*request),
                                           std::move(*prompts), std::move(context))) {
    return refuse(to_api_error(*failed));
  }
  counters_->generations.add();
  counters_->prompt_tokens.add(static_cast<double>(prompt_tokens));
}

}  // namespace weft::serve
