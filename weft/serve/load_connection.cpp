#include "weft/serve/load_connection.h"

namespace weft::serve {
namespace {
constexpr std::size_t kMaxEventBytes = std::size_t{16} << 20;
}

void read_usage(const simdjson::dom::element& response, std::uint32_t& prompt,
                std::uint32_t& completion, std::uint32_t& cached) {
  const auto take = [](simdjson::simdjson_result<simdjson::dom::element> field,
                       std::uint32_t& value) {
    std::int64_t number = 0;
    if (field.get(number) == simdjson::SUCCESS && number >= 0 && number < 0xFFFFFFFF) {
      value = static_cast<std::uint32_t>(number);
    }
  };
  take(response["usage"]["prompt_tokens"], prompt);
  take(response["usage"]["completion_tokens"], completion);
  take(response["usage"]["prompt_tokens_details"]["cached_tokens"], cached);
}

bool StreamReader::take(std::string_view bytes, const std::function<void()>& on_text) {
  pending_ += bytes;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = pending_.find('\n', begin);
    if (end == std::string::npos) break;
    std::string_view line = std::string_view(pending_).substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.starts_with("data:")) continue;  // blank lines, comments, event names
    line.remove_prefix(5);
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (!take_event(line, on_text)) return false;
  }
  pending_.erase(0, begin);
  return pending_.size() <= kMaxEventBytes;
}

bool StreamReader::take_event(std::string_view data, const std::function<void()>& on_text) {
  if (data == "[DONE]") {
    ended_ = true;
    return true;
  }
  simdjson::dom::element event;
  if (parser_.parse(data.data(), data.size()).get(event) != simdjson::SUCCESS) return false;
  simdjson::dom::element unused;
  if (event["error"].get(unused) == simdjson::SUCCESS && !unused.is_null()) {
    failed_ = true;
    return true;
  }
  read_usage(event, prompt_tokens, completion_tokens, cached_tokens);
  simdjson::dom::array choices;
  if (event["choices"].get(choices) != simdjson::SUCCESS) return event.is_object();
  for (const simdjson::dom::element choice : choices) {
    std::string_view text, reason;
    bool has_text = choice["text"].get(text) == simdjson::SUCCESS && !text.empty();
    for (const char* key : {"content", "reasoning_content", "reasoning"}) {
      has_text = has_text || (choice["delta"][key].get(text) == simdjson::SUCCESS && !text.empty());
    }
    if (has_text) on_text();
    if (choice["finish_reason"].get(reason) == simdjson::SUCCESS) ended_ = true;
  }
  return true;
}

void LoadConnection::send(std::string wire, double timeout_s, Events events) {
  wire_ = std::move(wire);
  events_ = std::move(events);
  reader_.emplace();
  busy_ = true;
  streaming_ = cancelled_ = answered_ = end_known_ = false;
  stream_.expires_after(std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1000)));
  if (events_.sent) events_.sent(Clock::now());
  if (connected_) return write();
  stream_.async_connect(endpoints_,
                        [self = shared_from_this()](beast::error_code error, const tcp::endpoint&) {
                          if (error) return self->failed(error, LoadOutcome::kRefused);
                          self->connected_ = true;
                          beast::error_code ignored;
                          self->stream_.socket().set_option(tcp::no_delay(true), ignored);
                          self->write();
                        });
}

void LoadConnection::cancel() {
  if (!busy_) return;
  cancelled_ = true;
  stream_.cancel();
  beast::error_code ignored;
  stream_.socket().close(ignored);
}

void LoadConnection::write() {
  net::async_write(stream_, net::buffer(wire_),
                   [self = shared_from_this()](beast::error_code error, std::size_t) {
                     if (error) return self->failed(error, LoadOutcome::kReset);
                     self->read_header();
                   });
}

void LoadConnection::read_header() {
  parser_.emplace();
  parser_->body_limit(std::uint64_t{1} << 30);
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](beast::error_code error, std::size_t) {
                            if (error) return self->failed(error, LoadOutcome::kReset);
                            self->answered_ = true;
                            const auto& head = self->parser_->get();
                            const std::string type(head[http::field::content_type]);
                            self->streaming_ = type.starts_with("text/event-stream");
                            self->read_some();
                          });
}

void LoadConnection::read_some() {
  // What came with the header is in the parser already.
  const auto now = Clock::now();
  if (streaming_) {
    std::string& body = parser_->get().body();
    if (!body.empty()) {
      const bool good = reader_->take(body, [&] { events_.text(now); });
      body.clear();
      if (reader_->ended() && !end_known_) {
        end_known_ = true;
        end_ = now;
      }
      if (!good) return finish(LoadOutcome::kMalformed);
      if (reader_->failed()) return finish(LoadOutcome::kServerError);
    }
  }
  if (parser_->is_done()) {
    const int status = parser_->get().result_int();
    if (status == 429) return finish(LoadOutcome::kTooMany);
    if (status == 503) return finish(LoadOutcome::kUnavailable);
    if (status >= 500) return finish(LoadOutcome::kServerError);
    if (status >= 400) return finish(LoadOutcome::kClientError);
    if (streaming_ && !reader_->ended()) return finish(LoadOutcome::kTruncated);
    return finish(LoadOutcome::kOk);
  }
  http::async_read_some(stream_, buffer_, *parser_,
                        [self = shared_from_this()](beast::error_code error, std::size_t) {
                          if (error == http::error::end_of_stream) {
                            // A body without a length ends with the connection.
                            beast::error_code ignored;
                            self->parser_->put_eof(ignored);
                            if (!self->parser_->is_done()) {
                              return self->failed(error, LoadOutcome::kTruncated);
                            }
                          } else if (error) {
                            return self->failed(error, LoadOutcome::kTruncated);
                          }
                          self->read_some();
                        });
}

void LoadConnection::failed(beast::error_code error, LoadOutcome otherwise) {
  if (cancelled_) return finish(LoadOutcome::kStopped);
  if (error == beast::error::timeout) return finish(LoadOutcome::kTimeout);
  if (error.category() == http::make_error_code(http::error::bad_version).category() &&
      error != http::error::end_of_stream && error != http::error::partial_message) {
    return finish(LoadOutcome::kMalformed);
  }
  finish(otherwise);
}

void LoadConnection::finish(LoadOutcome outcome) {
  Outcome out;
  out.outcome = outcome;
  out.end = end_known_ ? end_ : Clock::now();
  out.answered = answered_;
  if (parser_ && answered_) {
    out.status = static_cast<int>(parser_->get().result_int());
    if (!streaming_) out.body = std::move(parser_->get().body());
  }
  const bool whole = parser_ && answered_ && parser_->is_done();
  out.reusable = whole && parser_->get().keep_alive() && !cancelled_;
  busy_ = false;
  if (!out.reusable) {
    beast::error_code ignored;
    stream_.socket().close(ignored);
    connected_ = false;
    buffer_.clear();
  } else {
    stream_.expires_never();
  }
  // The callbacks may send the next request on this connection.
  const auto done = std::move(events_.done);
  const auto reader = std::move(*reader_);
  events_ = {};
  done(std::move(out), reader);
}

}  // namespace weft::serve
