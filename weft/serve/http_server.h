// A small HTTP/1.1 server: a fixed number of threads, one coroutine-like session
// per connection, answers whole or streamed. docs/protocols/http-api.md has the limits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/result.h"

namespace weft::serve {

struct HttpRequest {
  std::string method;                          // "GET"
  std::string path;                            // "/v1/models", without the query
  std::string query;                           // what follows "?"
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  std::string id;      // the client's x-request-id, or a new one
  std::string remote;  // "127.0.0.1:40112"

  const std::string* header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  bool close = false;  // end the connection after it
};

class HttpSession;

// One request and its answer. Every method may be called from any thread; work
// that is posted runs one at a time, in order. An exchange that is dropped without
// an answer is answered with 500.
class HttpExchange {
 public:
  HttpExchange(std::shared_ptr<HttpSession> session, HttpRequest request);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  const HttpRequest& request() const { return request_; }
  void respond(HttpResponse response);   // the whole answer; once
  void begin_stream(HttpResponse head);  // status and headers, then write() and finish()
  void write(std::string data);
  void finish();
  void post(std::function<void()> work);
  // Called once if the client goes away, or reads too slowly, before the answer is
  // complete; at once if that has happened already.
  void on_disconnect(std::function<void()> callback);

 private:
  std::shared_ptr<HttpSession> session_;
  HttpRequest request_;
  bool answered_ = false;
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;  // 0 = any free one
  int threads = 2;
  std::size_t max_body_bytes = std::size_t{8} << 20;
  std::size_t max_header_bytes = std::size_t{16} << 10;
  std::size_t max_connections = 2048;
  std::size_t max_unsent_bytes = std::size_t{8} << 20;  // of a stream whose client does not read
  double header_seconds = 10;  // from the first byte of a request to the end of its headers
  double body_seconds = 30;
  double idle_seconds = 120;  // between requests of a connection
  double write_seconds = 30;  // for the client to take what is sent
};

struct HttpServerStats {
  std::int64_t connections = 0, requests_total = 0, refused_total = 0;
};

class HttpServer {
 public:
  // Looks at a request before its body is read; an answer ends it there (401, 404, 405, 415).
  using Gate = std::function<std::optional<HttpResponse>(const HttpRequest&)>;
  using Handler = std::function<void(std::shared_ptr<HttpExchange>)>;
  // Turns a status and a sentence into the API's form of an error.
  using ErrorBody = std::function<std::string(int status, const std::string& message)>;
  // Called when an answer is complete or given up (status 499).
  using AccessLog =
      std::function<void(const HttpRequest&, int status, double seconds, std::size_t bytes)>;

  struct Hooks {
    Gate gate;
    Handler handler;
    ErrorBody error_body;
    AccessLog access_log;
  };

  // Listens; kUnavailable if the address is in use, with what to do.
  static Result<std::unique_ptr<HttpServer>> start(HttpServerOptions options, Hooks hooks);
  ~HttpServer();  // as shutdown(0)

  std::uint16_t port() const;
  HttpServerStats stats() const;
  void stop_accepting();  // idle connections close, running requests go on
  // Waits up to `seconds` for running answers, then closes what is left.
  void shutdown(double seconds);

  struct Impl;

 private:
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace weft::serve
