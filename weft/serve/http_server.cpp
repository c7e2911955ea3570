#include "weft/serve/http_server.h"

#include "weft/serve/http_session.h"

namespace weft::serve {

void HttpServer::Impl::accept() {
  acceptor.async_accept(
      net::make_strand(context), [self = shared_from_this()](ErrorCodeB error, tcp::socket socket) {
        if (!self->accepting) return;
        if (error) {
          // Out of descriptors, most likely: try again a little later, not at once.
          auto timer =
              std::make_shared<net::steady_timer>(self->context, std::chrono::milliseconds(100));
          timer->async_wait([self, timer](ErrorCodeB) {
            if (self->accepting) self->accept();
          });
          return;
        }
        const bool refuse =
            self->connections >= static_cast<std::int64_t>(self->options.max_connections);
        auto session = std::make_shared<HttpSession>(self, std::move(socket), refuse);
        {
          const std::lock_guard lock(self->mutex);
          self->sessions.insert(session.get());
          self->connections = static_cast<std::int64_t>(self->sessions.size());
        }
        session->begin();
        self->accept();
      });
}

void HttpServer::Impl::remove(HttpSession* session) {
  const std::lock_guard lock(mutex);
  sessions.erase(session);
  connections = static_cast<std::int64_t>(sessions.size());
  changed.notify_all();
}

void HttpServer::Impl::close_sessions(bool all) {
  // Released outside the lock: the last holder of a session takes it in remove().
  std::vector<std::shared_ptr<HttpSession>> alive;
  {
    const std::lock_guard lock(mutex);
    for (auto* session : sessions) {
      if (auto held = session->weak_from_this().lock()) alive.push_back(std::move(held));
    }
  }
  for (const auto& session : alive) session->close_from_outside(all);
}

// ---- exchange

const std::string* HttpRequest::header(std::string_view name) const {
  const auto found = headers.find(std::string(name));
  return found == headers.end() ? nullptr : &found->second;
}

HttpExchange::HttpExchange(std::shared_ptr<HttpSession> session, HttpRequest request)
    : session_(std::move(session)), request_(std::move(request)) {}

HttpExchange::~HttpExchange() {
  if (!answered_) {
    session_->on_strand(
        [session = session_] { session->answer_error(500, "the request was dropped"); });
  }
}

void HttpExchange::respond(HttpResponse response) {
  answered_ = true;
  session_->on_strand([session = session_, response = std::move(response)]() mutable {
    session->respond(std::move(response));
  });
}
void HttpExchange::begin_stream(HttpResponse head) {
  answered_ = true;
  session_->on_strand([session = session_, head = std::move(head)]() mutable {
    session->begin_stream(std::move(head));
  });
}
void HttpExchange::write(std::string data) {
  session_->on_strand(
      [session = session_, data = std::move(data)]() mutable { session->write(std::move(data)); });
}
void HttpExchange::finish() {
  session_->on_strand([session = session_] { session->finish(); });
}
void HttpExchange::post(std::function<void()> work) { session_->on_strand(std::move(work)); }
void HttpExchange::on_disconnect(std::function<void()> callback) {
  session_->on_strand([session = session_, callback = std::move(callback)]() mutable {
    session->on_disconnect(std::move(callback));
  });
}

// ---- server

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpServerOptions options, Hooks hooks) {
  auto impl = std::make_shared<Impl>(std::move(options), std::move(hooks));
  const auto& o = impl->options;
  ErrorCodeB error;
  tcp::resolver resolver(impl->context);
  const auto found =
      resolver.resolve(o.host, std::to_string(o.port), tcp::resolver::passive, error);
  if (error || found.begin() == found.end()) {
    return fail(ErrorCode::kInvalidArgument, "--host {}: {}", o.host,
                error ? error.message() : "no such address");
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  const auto refused = [&] {
    return fail(ErrorCode::kUnavailable,
                "cannot listen at {}:{}: {}; choose another --port (0 takes a free one)", o.host,
                o.port, error.message());
  };
  if (impl->acceptor.open(endpoint.protocol(), error)) return refused();
  impl->acceptor.set_option(net::socket_base::reuse_address(true), error);
  if (impl->acceptor.bind(endpoint, error)) return refused();
  if (impl->acceptor.listen(1024, error)) return refused();
  impl->port = impl->acceptor.local_endpoint(error).port();
  impl->accept();
  for (int i = 0; i < std::max(1, o.threads); ++i) {
    impl->threads.emplace_back([impl = impl.get()] { impl->context.run(); });
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { shutdown(0); }

std::uint16_t HttpServer::port() const { return impl_->port; }

HttpServerStats HttpServer::stats() const {
  return {impl_->connections, impl_->requests, impl_->refused};
}

void HttpServer::stop_accepting() {
  impl_->accepting = false;
  net::post(impl_->context, [impl = impl_] {
    ErrorCodeB ignored;
    impl->acceptor.close(ignored);
  });
  impl_->close_sessions(false);
}

void HttpServer::shutdown(double seconds) {
  if (impl_->stopped) return;
  impl_->stopped = true;
  stop_accepting();
  {
    std::unique_lock lock(impl_->mutex);
    impl_->changed.wait_for(lock, to_duration(seconds), [&] { return impl_->sessions.empty(); });
  }
  impl_->close_sessions(true);
  {
    std::unique_lock lock(impl_->mutex);
    impl_->changed.wait_for(lock, std::chrono::milliseconds(500),
                            [&] { return impl_->sessions.empty(); });
  }
  impl_->context.stop();
  for (auto& thread : impl_->threads) thread.join();
  // What was posted last holds sessions, and they the context: run it empty.
  impl_->context.restart();
  impl_->context.poll();
}

}  // namespace weft::serve
