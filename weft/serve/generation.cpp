#include "weft/serve/generation.h"

#include <chrono>

#include "weft/base/id.h"

namespace weft::serve {
namespace {

using Clock = std::chrono::steady_clock;

// OpenAI's prefixes of the objects that answer /v1/completions and /v1/chat/completions.
struct CompletionTag {
  static constexpr std::string_view kPrefix = "cmpl";
};
struct ChatCompletionTag {
  static constexpr std::string_view kPrefix = "chatcmpl";
};

struct Choice {
  std::string text;
  std::vector<ShownLogprob> logprobs;
  std::int64_t shown_characters = 0;  // streamed completions: for text_offset
  FinishReason finish = FinishReason::kNone;
  std::string error;
};

// Everything runs on the exchange's strand, except the engine's callback, which posts.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(Engine& engine, std::shared_ptr<HttpExchange> exchange, ApiRequest request,
             GenerationContext context)
      : engine_(engine),
        exchange_(std::move(exchange)),
        request_(std::move(request)),
        context_(std::move(context)),
        id_(context_.chat ? Id<ChatCompletionTag>::fresh().str()
                          : Id<CompletionTag>::fresh().str()),
        started_(Clock::now()) {}

  std::optional<Error> submit(std::vector<std::vector<model::TokenId>> prompts) {
    choices_.resize(prompts.size() * static_cast<std::size_t>(request_.n));
    running_ = choices_.size();
    std::size_t index = 0;
    for (std::size_t p = 0; p < prompts.size(); ++p) {
      for (std::int64_t k = 0; k < request_.n; ++k, ++index) {
        GenerationRequest each;
        each.prompt = prompts[p];
        each.sampling = request_.sampling;
        each.sampling.stream = static_cast<std::uint64_t>(k);
        each.on_event = [self = shared_from_this(), index](const TokenEvent& event) {
          self->exchange_->post([self, index, event] { self->take(index, event); });
        };
        const auto submitted = engine_.submit(std::move(each));
        if (!submitted) {
          given_up_ = true;
          cancel();
          return submitted.error();
        }
        ids_.push_back(*submitted);
        if (request_.echo && !context_.chat) choices_[index].text = echo_text(p, prompts[p]);
      }
    }
    // The weak reference keeps the session, which holds this callback, from holding itself.
    exchange_->on_disconnect([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->disconnected();
    });
    return std::nullopt;
  }

 private:
  std::string echo_text(std::size_t prompt, const std::vector<model::TokenId>& ids) const {
    const ApiPrompt& given = request_.prompts[prompt];
    return given.is_ids ? context_.tokenizer->decode(ids, false) : given.text;
  }

  void cancel() {
    for (const auto id : ids_) engine_.cancel(id);
  }
  void disconnected() {
    if (given_up_ || running_ == 0) return;
    given_up_ = true;
    cancel();
    if (context_.on_end) context_.on_end(seconds_since(started_), true);
  }
  static double seconds_since(Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count();
  }

  void take(std::size_t index, const TokenEvent& event) {
    if (given_up_) return;
    Choice& choice = choices_[index];
    if (event.token.token >= 0) count_token(index);
    // The end-of-text token ends the reply; it is not part of it.
    const bool shown = event.token.token >= 0 && !is_end(event);
    std::vector<ShownLogprob> logprobs;
    if (request_.want_logprobs && shown) logprobs.push_back(show(event.token));
    if (event.finish != FinishReason::kNone) {
      choice.finish = event.finish;
      choice.error = event.error;
      --running_;
      if (event.finish == FinishReason::kError || event.finish == FinishReason::kCancelled) {
        return give_up(choice);
      }
    }
    if (request_.stream) {
      stream(index, event.text, std::move(logprobs));
    } else {
      choice.text += event.text;
      for (auto& each : logprobs) choice.logprobs.push_back(std::move(each));
    }
    if (running_ == 0) end();
  }

  bool is_end(const TokenEvent& event) const {
    if (event.finish != FinishReason::kStop) return false;
    for (const auto id : context_.tokenizer->eos()) {
      if (id == event.token.token) return true;
    }
    return false;
  }

  void count_token(std::size_t index) {
    ++reply_tokens_;
    const auto now = Clock::now();
    if (last_token_.size() <= index) last_token_.resize(choices_.size());
    if (reply_tokens_ == 1 && context_.on_first_token)
      context_.on_first_token(seconds_since(started_));
    const bool first = last_token_[index] == Clock::time_point{};
    if (context_.on_token) {
      context_.on_token(first ? -1
                              : std::chrono::duration<double>(now - last_token_[index]).count());
    }
    last_token_[index] = now;
  }

  ShownLogprob show(const SampledToken& token) const {
    ShownLogprob out{context_.tokenizer->token_bytes(token.token), token.logprob, {}};
    for (const auto& each : token.top)
      out.top.emplace_back(context_.tokenizer->token_bytes(each.token), each.logprob);
    return out;
  }

  void give_up(const Choice& choice) {
    given_up_ = true;
    cancel();
    ApiError error{500, choice.error, "", ""};
    if (choice.finish == FinishReason::kCancelled)
      error = {503, "the server stopped before the reply was complete", "", "draining"};
    if (streaming_) {
      exchange_->write("data: " + error_body(error) + "\n\n");
      exchange_->finish();
    } else {
      HttpResponse response;
      response.status = error.status;
      response.body = error_body(error);
      exchange_->respond(std::move(response));
    }
    if (context_.on_end) context_.on_end(seconds_since(started_), false);
  }

  Json head(const char* object) const {
    Json out = Json::object();
    out["id"] = id_;
    out["object"] = object;
    out["created"] = context_.created;
    out["model"] = context_.model_name;
    return out;
  }
  static Json finish_json(FinishReason finish) {
    return finish == FinishReason::kNone ? Json() : Json(std::string(to_string(finish)));
  }

  // ---- streamed

  void send(Json choice) {
    Json chunk = head(context_.chat ? "chat.completion.chunk" : "text_completion");
    chunk["choices"] = Json::array({std::move(choice)});
    if (request_.include_usage) chunk["usage"] = nullptr;
    exchange_->write("data: " + dump_json(chunk) + "\n\n");
  }

  void begin_stream() {
    streaming_ = true;
    HttpResponse response;
    response.content_type = "text/event-stream; charset=utf-8";
    response.headers.emplace_back("Cache-Control", "no-cache");
    response.headers.emplace_back("X-Accel-Buffering", "no");
    exchange_->begin_stream(std::move(response));
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (context_.chat) {
        Json delta = Json::object();
        delta["role"] = "assistant";
        delta["content"] = "";
        send(chat_choice(i, std::move(delta), Json(), FinishReason::kNone));
      } else if (!choices_[i].text.empty()) {
        Json choice = completion_choice(i, choices_[i].text, Json(), FinishReason::kNone);
        send(std::move(choice));
      }
    }
  }

  static Json chat_choice(std::size_t index, Json delta, Json logprobs, FinishReason finish) {
    Json choice = Json::object();
    choice["index"] = index;
    choice["delta"] = std::move(delta);
    choice["logprobs"] = std::move(logprobs);
    choice["finish_reason"] = finish_json(finish);
    return choice;
  }
  static Json completion_choice(std::size_t index, const std::string& text, Json logprobs,
                                FinishReason finish) {
    Json choice = Json::object();
    choice["index"] = index;
    choice["text"] = text;
    choice["logprobs"] = std::move(logprobs);
    choice["finish_reason"] = finish_json(finish);
    return choice;
  }

  void stream(std::size_t index, const std::string& text, std::vector<ShownLogprob> logprobs) {
    if (!streaming_) begin_stream();
    Choice& choice = choices_[index];
    const bool something = !text.empty() || !logprobs.empty();
    if (context_.chat) {
      if (something) {
        Json delta = Json::object();
        delta["content"] = text;
        send(chat_choice(index, std::move(delta),
                         request_.want_logprobs ? chat_logprobs(logprobs) : Json(),
                         FinishReason::kNone));
      }
      if (choice.finish != FinishReason::kNone)
        send(chat_choice(index, Json::object(), Json(), choice.finish));
      return;
    }
    if (!something && choice.finish == FinishReason::kNone) return;
    Json shown;
    if (request_.want_logprobs) {
      shown = completion_logprobs(logprobs, choice.shown_characters);
      for (const auto& each : logprobs) {
        for (char c : each.bytes)
          choice.shown_characters += (static_cast<unsigned char>(c) & 0xc0U) != 0x80U ? 1 : 0;
      }
    }
    send(completion_choice(index, text, std::move(shown), choice.finish));
  }

  // ---- whole

  ApiUsage usage() const { return {context_.prompt_tokens, reply_tokens_}; }

  Json whole() const {
    Json out = head(context_.chat ? "chat.completion" : "text_completion");
    Json choices = Json::array();
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const Choice& from = choices_[i];
      Json choice = Json::object();
      choice["index"] = i;
      if (context_.chat) {
        Json message = Json::object();
        message["role"] = "assistant";
        message["content"] = from.text;
        message["refusal"] = nullptr;
        choice["message"] = std::move(message);
      } else {
        choice["text"] = from.text;
      }
      if (!request_.want_logprobs) {
        choice["logprobs"] = nullptr;
      } else {
        choice["logprobs"] =
            context_.chat ? chat_logprobs(from.logprobs) : completion_logprobs(from.logprobs, 0);
      }
      choice["finish_reason"] = finish_json(from.finish);
      choices.push_back(std::move(choice));
    }
    out["choices"] = std::move(choices);
    out["usage"] = usage_json(usage());
    return out;
  }

  void end() {
    given_up_ = true;  // nothing may follow
    if (request_.stream) {
      if (request_.include_usage) {
        Json chunk = head(context_.chat ? "chat.completion.chunk" : "text_completion");
        chunk["choices"] = Json::array();
        chunk["usage"] = usage_json(usage());
        exchange_->write("data: " + dump_json(chunk) + "\n\n");
      }
      exchange_->write("data: [DONE]\n\n");
      exchange_->finish();
    } else {
      HttpResponse response;
      response.body = dump_json(whole());
      exchange_->respond(std::move(response));
    }
    if (context_.on_end) context_.on_end(seconds_since(started_), false);
  }

  Engine& engine_;
  std::shared_ptr<HttpExchange> exchange_;
  ApiRequest request_;
  GenerationContext context_;
  std::string id_;
  Clock::time_point started_;
  std::vector<std::uint64_t> ids_;
  std::vector<Choice> choices_;
  std::vector<Clock::time_point> last_token_;
  std::size_t running_ = 0;
  std::int64_t reply_tokens_ = 0;
  bool streaming_ = false;
  bool given_up_ = false;  // no more to say: ended, refused, or the client is gone
};

}  // namespace

std::optional<Error> start_generation(Engine& engine, const std::shared_ptr<HttpExchange>& exchange,
                                      ApiRequest request,
                                      std::vector<std::vector<model::TokenId>> prompts,
                                      GenerationContext context) {
  const auto generation =
      std::make_shared<Generation>(engine, exchange, std::move(request), std::move(context));
  return generation->submit(std::move(prompts));
}

}  // namespace weft::serve
