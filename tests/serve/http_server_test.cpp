// The HTTP server over raw sockets: requests in pieces and in rows, limits, deadlines.
#include "weft/serve/http_server.h"

#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "tests/support/raw_client.h"

namespace weft::serve {
namespace {

using std::chrono::milliseconds;
using test::RawClient;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Answers with what it understood: "METHOD path?query [body]".
class EchoServer {
 public:
  explicit EchoServer(HttpServerOptions options = {}) {
    options.port = 0;
    HttpServer::Hooks hooks;
    hooks.gate = [](const HttpRequest& request) -> std::optional<HttpResponse> {
      if (request.path != "/forbidden") return std::nullopt;
      return HttpResponse{.status = 401, .body = "no", .headers = {}};
    };
    hooks.handler = [](const std::shared_ptr<HttpExchange>& exchange) {
      const HttpRequest& r = exchange->request();
      exchange->respond({.body = fmt::format("<{} {}?{} [{}]>", r.method, r.path, r.query, r.body),
                         .headers = {}});
    };
    hooks.error_body = [](int status, const std::string& message) {
      return fmt::format("<{} {}>", status, message);
    };
    auto server = HttpServer::start(options, std::move(hooks));
    EXPECT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }
  RawClient connect() const { return RawClient(server_->port()); }
  // One exchange on a connection of its own, which the server must end.
  std::string ask(std::string_view wire) const {
    RawClient client = connect();
    client.send(wire);
    return client.read_to_end();
  }
  bool alive() const {
    return ask("GET /alive HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
               .find("<GET /alive? []>") != std::string::npos;
  }

 private:
  std::unique_ptr<HttpServer> server_;
};

constexpr std::string_view kPost =
    "POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";

TEST(HttpServer, TakesARequestByteByByte) {
  const EchoServer server;
  RawClient client = server.connect();
  for (const char c : kPost) {
    client.send(std::string_view(&c, 1));
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_THAT(client.read_until("[hello]>"), HasSubstr("<POST /a?b=c [hello]>"));
}

TEST(HttpServer, TakesARequestCutAtEveryPlace) {
  const EchoServer server;
  RawClient client = server.connect();  // one connection for all: each cut is a request of its own
  for (std::size_t cut = 1; cut < kPost.size(); ++cut) {
    client.send(kPost.substr(0, cut));
    std::this_thread::sleep_for(milliseconds(1));
    client.send(kPost.substr(cut));
    ASSERT_THAT(client.read_until("[hello]>"), StartsWith("HTTP/1.1 200")) << cut;
  }
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  const EchoServer server;
  RawClient client = server.connect();
  std::string wire, wanted;
  for (int i = 0; i < 20; ++i) {
    wire += i % 2 == 0
                ? fmt::format("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", i)
                : fmt::format("POST /{0} HTTP/1.1\r\nHost: x\r\nContent-Length: {1}\r\n\r\n{0}", i,
                              std::to_string(i).size());
    wanted += i % 2 == 0 ? fmt::format("<GET /{}? []>", i) : fmt::format("<POST /{0}? [{0}]>", i);
  }
  client.send(wire);
  client.send("GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string out = client.read_to_end();
  std::string bodies;
  for (std::size_t at = 0; (at = out.find('<', at)) != std::string::npos;) {
    const std::size_t end = out.find('>', at);
    bodies += out.substr(at, end + 1 - at);
    at = end;
  }
  EXPECT_EQ(bodies, wanted + "<GET /last? []>");
}

TEST(HttpServer, ReadsChunksHoweverTheyAreCut) {
  const EchoServer server;
  constexpr std::string_view kChunked =
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
      "3;name=value\r\nabc\r\n0A\r\n0123456789\r\n0\r\nX-Trailer: y\r\n\r\n";
  for (std::size_t cut = 60; cut < kChunked.size(); cut += 3) {
    RawClient client = server.connect();
    client.send(kChunked.substr(0, cut));
    std::this_thread::sleep_for(milliseconds(1));
    client.send(kChunked.substr(cut));
    ASSERT_THAT(client.read_to_end(), HasSubstr("[abc0123456789]")) << cut;
  }
}

TEST(HttpServer, RefusesHeadersThatAreTooLarge) {
  const EchoServer server({.max_header_bytes = 1024});
  const std::string fits =
      "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nA: " + std::string(900, 'a');
  EXPECT_THAT(server.ask(fits + "\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  const std::string out = server.ask(fits + std::string(200, 'a') + "\r\n\r\n");
  EXPECT_THAT(out, StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(out, HasSubstr("larger than 1024 bytes"));
  // One that never ends is cut off too.
  EXPECT_THAT(server.ask(fits + std::string(100'000, 'a')), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(server.ask("GET /" + std::string(5000, 'a')), StartsWith("HTTP/1.1 431"));
  EXPECT_TRUE(server.alive());
}

TEST(HttpServer, RefusesBodiesThatAreTooLarge) {
  const EchoServer server({.max_body_bytes = 1000});
  const auto with_length = [](std::size_t bytes) {
    return fmt::format(
        "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", bytes);
  };
  EXPECT_THAT(server.ask(with_length(1000) + std::string(1000, 'b')), StartsWith("HTTP/1.1 200"));
  // By its length alone: nothing of the body is waited for.
  EXPECT_THAT(server.ask(with_length(1001)), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(server.ask(with_length(1'000'000'000'000)), StartsWith("HTTP/1.1 413"));
  std::string chunks = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 20; ++i) chunks += "64\r\n" + std::string(100, 'b') + "\r\n";
  const std::string out = server.ask(chunks);
  EXPECT_THAT(out, StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(out, HasSubstr("--max-body"));
  EXPECT_TRUE(server.alive());
}

TEST(HttpServer, RefusesWhatIsNotHttp) {
  const EchoServer server;
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\n";
  for (const std::string& wire : std::vector<std::string>{
           "nonsense\r\n\r\n", "GET  HTTP/1.1\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
           "GET / FTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
           "GET / HTTP/1.1\r\n: no name\r\n\r\n", "GET / HTTP/1.1\r\nA b: c\r\n\r\n",
           // Chunks.
           head + "Transfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n0\r\n\r\n",
           head + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
           head + "Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n",
           head + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n",
           // Lengths, and two ways to say where a body ends (request smuggling).
           head + "Content-Length: x\r\n\r\n", head + "Content-Length: -1\r\n\r\n",
           head + "Content-Length: 99999999999999999999\r\n\r\n",
           head + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
           head + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}) {
    const std::string out = server.ask(wire);
    EXPECT_THAT(out, StartsWith("HTTP/1.1 400")) << wire;
    EXPECT_THAT(out, HasSubstr("<400 ")) << wire;
    EXPECT_THAT(out, Not(HasSubstr("POST /"))) << wire;
  }
  EXPECT_TRUE(server.alive());
}

TEST(HttpServer, ClosesOnSlowHeadersAndBodies) {
  const EchoServer server({.header_seconds = 0.3, .body_seconds = 0.3, .idle_seconds = 30});
  using Clock = std::chrono::steady_clock;
  const auto seconds = [&](std::string_view wire, bool drip) {
    RawClient client = server.connect();
    const auto begin = Clock::now();
    client.send(wire);
    while (drip && !client.ended(milliseconds(50))) client.send("a");  // each byte well in time
    EXPECT_EQ(client.read_to_end(), "") << wire;
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  for (const bool drip : {false, true}) {
    for (const char* wire :
         {"GET / HTTP/1.1\r\nHo", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\nab"}) {
      const double taken = seconds(wire, drip);
      EXPECT_GT(taken, 0.25) << wire;
      EXPECT_LT(taken, 5.0) << wire;
    }
  }
  // A connection that waits between requests is not slow.
  RawClient idle = server.connect();
  EXPECT_FALSE(idle.ended(milliseconds(600)));
  idle.send(kPost);
  EXPECT_THAT(idle.read_until("[hello]>"), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(server.alive());
}

TEST(HttpServer, ClosesIdleConnections) {
  const EchoServer server({.idle_seconds = 0.2});
  RawClient client = server.connect();
  EXPECT_TRUE(client.ended(milliseconds(5000)));
}

TEST(HttpServer, AnswersBeforeTheBodyWhereItNeedNotBeRead) {
  const EchoServer server;
  const std::string out =
      server.ask("POST /forbidden HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_THAT(out, StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(out, HasSubstr("Connection: close"));
}

TEST(HttpServer, OutlivesClientsThatLeaveAnywhere) {
  const EchoServer server;
  for (std::size_t cut = 0; cut <= kPost.size(); ++cut) {
    RawClient client = server.connect();
    client.send(kPost.substr(0, cut));
    if (cut % 2 == 0) client.reset();
  }
  EXPECT_TRUE(server.alive());
}

TEST(HttpServer, RefusesConnectionsBeyondTheLimit) {
  const EchoServer server({.max_connections = 2});
  RawClient first = server.connect(), second = server.connect();
  for (RawClient* client : {&first, &second}) {  // both are served, so both are counted
    client->send(kPost);
    EXPECT_THAT(client->read_until("[hello]>"), StartsWith("HTTP/1.1 200"));
  }
  const std::string out = server.ask("");
  EXPECT_THAT(out, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(out, HasSubstr("Retry-After: 1"));
  first.send(kPost);
  EXPECT_THAT(first.read_until("[hello]>"), StartsWith("HTTP/1.1 200"));
}

}  // namespace
}  // namespace weft::serve
