// One connection of the HTTP server. Only for http_session.cpp and http_server.cpp:
// this header is the one that includes Boost.Beast.
#pragma once

// clang-format off
#include <utility>  // Boost 1.74's awaitable.hpp uses std::exchange without it
// clang-format on

#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "weft/serve/http_server.h"

namespace weft::serve {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = net::ip::tcp;
using ErrorCodeB = beast::error_code;

inline std::chrono::milliseconds to_duration(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

struct HttpServer::Impl : std::enable_shared_from_this<HttpServer::Impl> {
  explicit Impl(HttpServerOptions options, Hooks hooks)
      : options(std::move(options)),
        hooks(std::move(hooks)),
        context(this->options.threads),
        acceptor(context) {}

  void accept();
  void close_sessions(bool all);
  void remove(HttpSession* session);

  HttpServerOptions options;
  Hooks hooks;
  net::io_context context;
  tcp::acceptor acceptor;
  std::uint16_t port = 0;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable changed;
  std::set<HttpSession*> sessions;  // those alive, each removing itself
  std::atomic<std::int64_t> connections{0}, requests{0}, refused{0};
  std::atomic<bool> accepting{true};
  bool stopped = false;
};

// One connection. All members are touched on its strand only.
class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(std::shared_ptr<HttpServer::Impl> server, tcp::socket socket, bool refuse)
      : server_(std::move(server)), stream_(std::move(socket)), refuse_(refuse) {}
  ~HttpSession() { server_->remove(this); }

  template <class Work>
  void on_strand(Work work) {
    net::post(stream_.get_executor(), std::move(work));
  }
  void begin() {
    on_strand([self = shared_from_this()] {
      ErrorCodeB ignored;
      const auto end = self->stream_.socket().remote_endpoint(ignored);
      if (!ignored) self->remote_ = fmt::format("{}:{}", end.address().to_string(), end.port());
      self->stream_.socket().set_option(tcp::no_delay(true), ignored);
      self->wait_for_request();
    });
  }
  // From any thread: ends a connection that waits for a request (or every one, if `all`).
  void close_from_outside(bool all) {
    on_strand([self = shared_from_this(), all] {
      if (all || self->idle_) self->close();
    });
  }

  void answer_error(int status, const std::string& message);
  // What the exchange asks for; on the strand.
  void respond(HttpResponse response);
  void begin_stream(HttpResponse head);
  void write(std::string data);
  void finish();
  void on_disconnect(std::function<void()> callback) {
    if (gone_) {
      callback();
    } else {
      disconnect_ = std::move(callback);
    }
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  void wait_for_request();
  void read_header();
  void read_body();
  void dispatch();
  HttpRequest take_head();
  void fail_reading(ErrorCodeB error);
  void watch_client();
  void client_gone();
  void send_next();
  void complete();
  void close();
  void fill(http::response<http::string_body>& message, const HttpResponse& from);

  std::shared_ptr<HttpServer::Impl> server_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  HttpRequest head_;  // of the request in hand, for the log
  std::string remote_;
  std::chrono::steady_clock::time_point started_;
  std::function<void()> disconnect_;
  std::deque<std::string> unsent_;  // wire bytes
  std::size_t unsent_bytes_ = 0, sent_bytes_ = 0;
  bool refuse_ = false;
  bool idle_ = false, answering_ = false, sending_ = false, chunked_ = false, ended_ = true;
  bool keep_alive_ = false, gone_ = false, closed_ = false;
  int status_ = 0;
};

}  // namespace weft::serve
