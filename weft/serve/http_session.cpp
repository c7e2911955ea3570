#include "weft/serve/http_session.h"

#include "weft/base/id.h"

namespace weft::serve {
namespace {

using Clock = std::chrono::steady_clock;

struct RequestTag {
  static constexpr std::string_view kPrefix = "req";
};
using RequestId = Id<RequestTag>;  // one HTTP request, in the log and in x-request-id

// What may be logged and sent back as it came.
bool is_plain_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 &&
         id.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:") ==
             std::string_view::npos;
}

}  // namespace

// ---- reading

void HttpSession::wait_for_request() {
  if (closed_) return;
  if (refuse_) {
    ++server_->refused;
    keep_alive_ = false;
    started_ = Clock::now();
    return answer_error(503, "too many connections; try again later");
  }
  if (!server_->accepting) return close();
  if (buffer_.size() > 0) return read_header();  // pipelined
  idle_ = true;
  stream_.expires_after(to_duration(server_->options.idle_seconds));
  stream_.async_read_some(buffer_.prepare(4096),
                          [self = shared_from_this()](ErrorCodeB error, std::size_t size) {
                            self->idle_ = false;
                            if (error) return self->close();
                            self->buffer_.commit(size);
                            self->read_header();
                          });
}

void HttpSession::read_header() {
  started_ = Clock::now();
  head_ = HttpRequest{};
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(server_->options.max_header_bytes));
  parser_->body_limit(server_->options.max_body_bytes);
  stream_.expires_after(to_duration(server_->options.header_seconds));
  http::async_read_header(
      stream_, buffer_, *parser_, [self = shared_from_this()](ErrorCodeB error, std::size_t) {
        if (error) return self->fail_reading(error);
        self->head_ = self->take_head();
        ++self->server_->requests;
        self->keep_alive_ = self->parser_->keep_alive();
        const auto length = self->parser_->content_length();
        if (length && *length > self->server_->options.max_body_bytes) {
          return self->fail_reading(http::error::body_limit);
        }
        if (self->server_->hooks.gate) {
          if (auto early = self->server_->hooks.gate(self->head_)) {
            // The body is not read, so the connection cannot go on, unless there is none.
            if (length.value_or(0) > 0 || self->parser_->chunked()) early->close = true;
            return self->respond(std::move(*early));
          }
        }
        const auto expect = self->head_.headers.find("expect");
        if (expect == self->head_.headers.end() ||
            !beast::iequals(expect->second, "100-continue")) {
          return self->read_body();
        }
        auto go_on = std::make_shared<std::string>("HTTP/1.1 100 Continue\r\n\r\n");
        net::async_write(self->stream_, net::buffer(*go_on),
                         [self, go_on](ErrorCodeB failed, std::size_t) {
                           if (failed) return self->close();
                           self->read_body();
                         });
      });
}

void HttpSession::read_body() {
  stream_.expires_after(to_duration(server_->options.body_seconds));
  http::async_read(stream_, buffer_, *parser_,
                   [self = shared_from_this()](ErrorCodeB error, std::size_t) {
                     if (error) return self->fail_reading(error);
                     self->dispatch();
                   });
}

HttpRequest HttpSession::take_head() {
  HttpRequest out;
  const auto& message = parser_->get();
  out.method = std::string(message.method_string());
  const std::string target(message.target());
  const auto question = target.find('?');
  out.path = target.substr(0, question);
  if (question != std::string::npos) out.query = target.substr(question + 1);
  for (const auto& field : message) {
    std::string name(field.name_string());
    for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    out.headers.emplace(std::move(name), std::string(field.value()));
  }
  const std::string* id = out.header("x-request-id");
  out.id = id != nullptr && is_plain_id(*id) ? *id : RequestId::fresh().str();
  out.remote = remote_;
  return out;
}

void HttpSession::fail_reading(ErrorCodeB error) {
  keep_alive_ = false;
  if (error == http::error::end_of_stream || error == net::error::connection_reset ||
      error == net::error::operation_aborted) {
    return close();
  }
  if (error == beast::error::timeout) {
    // The stream is closed by its timer; only the log is left to do.
    status_ = 408;
    if (server_->hooks.access_log) server_->hooks.access_log(head_, 408, 0, 0);
    return close();
  }
  if (error == http::error::body_limit) {
    return answer_error(413, fmt::format("the body is larger than {} bytes (--max-body)",
                                         server_->options.max_body_bytes));
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return answer_error(431, fmt::format("the headers are larger than {} bytes",
                                         server_->options.max_header_bytes));
  }
  if (error == http::error::partial_message) return close();
  if (error.category() == http::make_error_code(http::error::bad_target).category()) {
    return answer_error(400, fmt::format("this is not HTTP/1.1: {}", error.message()));
  }
  close();
}

void HttpSession::dispatch() {
  HttpRequest request = head_;
  request.body = std::move(parser_->get().body());
  answering_ = true;
  ended_ = false;
  stream_.expires_never();
  watch_client();
  auto exchange = std::make_shared<HttpExchange>(shared_from_this(), std::move(request));
  server_->hooks.handler(std::move(exchange));
}

// While an answer is made, a readable socket means that the client closed it or
// sends ahead; the latter is left for the next request.
void HttpSession::watch_client() {
  stream_.socket().async_wait(tcp::socket::wait_read,
                              [self = shared_from_this()](ErrorCodeB error) {
                                if (error || !self->answering_ || self->closed_) return;
                                char byte = 0;
                                ErrorCodeB failed;
                                self->stream_.socket().non_blocking(true, failed);
                                const auto size = self->stream_.socket().receive(
                                    net::buffer(&byte, 1), tcp::socket::message_peek, failed);
                                if (failed == net::error::would_block) return self->watch_client();
                                if (failed || size == 0) self->client_gone();
                              });
}

void HttpSession::client_gone() {
  if (gone_) return;
  gone_ = true;
  if (answering_) {
    answering_ = false;
    const double seconds = std::chrono::duration<double>(Clock::now() - started_).count();
    if (server_->hooks.access_log) server_->hooks.access_log(head_, 499, seconds, sent_bytes_);
  }
  if (auto callback = std::exchange(disconnect_, nullptr)) callback();
  close();
}

// ---- writing

void HttpSession::fill(http::response<http::string_body>& message, const HttpResponse& from) {
  message.set(http::field::server, "weft");
  if (!from.content_type.empty()) message.set(http::field::content_type, from.content_type);
  if (!head_.id.empty()) message.set("x-request-id", head_.id);
  for (const auto& [name, value] : from.headers) message.set(name, value);
}

void HttpSession::answer_error(int status, const std::string& message) {
  HttpResponse response;
  response.status = status;
  response.body = server_->hooks.error_body ? server_->hooks.error_body(status, message) : message;
  response.close = true;
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  respond(std::move(response));
}

namespace {

template <class Message>
std::string serialize(Message& message) {
  std::string out;
  typename Message::body_type::value_type body = std::move(message.body());
  message.body() = {};
  http::response_serializer<typename Message::body_type> serializer(message);
  ErrorCodeB error;
  serializer.split(true);
  serializer.next(error, [&](ErrorCodeB&, const auto& buffers) {
    for (auto it = net::buffer_sequence_begin(buffers); it != net::buffer_sequence_end(buffers);
         ++it) {
      const net::const_buffer part = *it;
      out.append(static_cast<const char*>(part.data()), part.size());
    }
  });
  return out + body;
}

}  // namespace

void HttpSession::respond(HttpResponse response) {
  if (closed_ || gone_) return;
  keep_alive_ = keep_alive_ && !response.close && server_->accepting;
  http::response<http::string_body> message{static_cast<http::status>(response.status), 11};
  fill(message, response);
  message.keep_alive(keep_alive_);
  message.content_length(response.body.size());
  if (head_.method != "HEAD") message.body() = std::move(response.body);
  status_ = response.status;
  answering_ = true;
  ended_ = true;
  std::string wire = serialize(message);
  unsent_bytes_ += wire.size();
  unsent_.push_back(std::move(wire));
  send_next();
}

void HttpSession::begin_stream(HttpResponse head) {
  if (closed_ || gone_) return;
  const bool old = parser_ && parser_->get().version() < 11;
  keep_alive_ = keep_alive_ && !old && server_->accepting;
  http::response<http::string_body> message{static_cast<http::status>(head.status), 11};
  fill(message, head);
  chunked_ = !old;
  if (chunked_) message.chunked(true);
  message.keep_alive(keep_alive_);
  status_ = head.status;
  std::string wire = serialize(message);
  unsent_bytes_ += wire.size();
  unsent_.push_back(std::move(wire));
  send_next();
}

void HttpSession::write(std::string data) {
  if (closed_ || gone_ || ended_ || data.empty()) return;
  if (chunked_) data = fmt::format("{:x}\r\n{}\r\n", data.size(), data);
  unsent_bytes_ += data.size();
  unsent_.push_back(std::move(data));
  if (unsent_bytes_ > server_->options.max_unsent_bytes) return client_gone();  // it does not read
  send_next();
}

void HttpSession::finish() {
  if (closed_ || gone_ || ended_) return;
  ended_ = true;
  if (chunked_) unsent_.emplace_back("0\r\n\r\n");
  chunked_ = false;
  send_next();
}

void HttpSession::send_next() {
  if (sending_) return;
  if (unsent_.empty()) {
    if (ended_ && answering_) complete();
    return;
  }
  sending_ = true;
  // One write of all that waits: tokens come faster than packets are worth.
  auto batch = std::make_shared<std::string>();
  for (auto& part : unsent_) *batch += part;
  unsent_.clear();
  stream_.expires_after(to_duration(server_->options.write_seconds));
  net::async_write(stream_, net::buffer(*batch),
                   [self = shared_from_this(), batch](ErrorCodeB error, std::size_t size) {
                     self->sending_ = false;
                     self->sent_bytes_ += size;
                     self->unsent_bytes_ -= std::min(self->unsent_bytes_, batch->size());
                     if (error) return self->client_gone();
                     self->stream_.expires_never();
                     self->send_next();
                   });
}

void HttpSession::complete() {
  answering_ = false;
  disconnect_ = nullptr;
  const double seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  if (server_->hooks.access_log) server_->hooks.access_log(head_, status_, seconds, sent_bytes_);
  sent_bytes_ = 0;
  if (!keep_alive_) {
    // A body that was not read would make the kernel reset the connection and take
    // the answer with it: say that no more comes, and let the client read first.
    ErrorCodeB ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(std::chrono::seconds(2));
    auto drain = std::make_shared<std::function<void(std::size_t)>>();
    auto sink = std::make_shared<std::vector<char>>(16384);
    std::weak_ptr<std::function<void(std::size_t)>> weak = drain;
    *drain = [self = shared_from_this(), sink, weak](std::size_t total) {
      if (total > (std::size_t{1} << 24)) return self->close();
      const auto again = weak.lock();
      self->stream_.async_read_some(net::buffer(*sink),
                                    [self, sink, again, total](ErrorCodeB error, std::size_t size) {
                                      if (error || !again) return self->close();
                                      (*again)(total + size);
                                    });
    };
    return (*drain)(0);
  }
  // The watch of the client may still be pending: a read of the next request and it
  // can both wait, and it ends when answering_ is off.
  ErrorCodeB ignored;
  stream_.socket().cancel(ignored);
  on_strand([self = shared_from_this()] { self->wait_for_request(); });
}

void HttpSession::close() {
  if (closed_) return;
  closed_ = true;
  if (auto callback = std::exchange(disconnect_, nullptr)) {
    gone_ = true;
    callback();
  }
  ErrorCodeB ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  stream_.close();
}

}  // namespace weft::serve
