// The load tester against stub servers: what it measures, and that a stall of the server
// cannot hide.
#include "weft/serve/load.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/support/data.h"
#include "weft/serve/http_server.h"
#include "weft/serve/load_plan.h"
#include "weft/serve/load_report.h"
#include "weft/workload/request_reader.h"

namespace weft::serve {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Answers every completion at once with as many tokens as asked for; between two moments
// it answers nothing, and then all that waited.
class StubServer {
 public:
  explicit StubServer(milliseconds stall_after = milliseconds(0),
                      milliseconds stall_for = milliseconds(0))
      : stall_after_(stall_after), stall_for_(stall_for) {
    HttpServer::Hooks hooks;
    hooks.handler = [this](std::shared_ptr<HttpExchange> exchange) { take(std::move(exchange)); };
    hooks.error_body = [](int, const std::string& message) { return message; };
    auto server = HttpServer::start({.port = 0}, std::move(hooks));
    EXPECT_TRUE(server.has_value());
    server_ = *std::move(server);
    if (stall_for.count() > 0) flusher_ = std::thread([this] { flush_after_stall(); });
  }
  ~StubServer() {
    if (flusher_.joinable()) flusher_.join();
    server_->shutdown(1);
  }
  LoadTarget target() const {
    auto target = parse_target(fmt::format("http://127.0.0.1:{}/v1", server_->port()));
    EXPECT_TRUE(target.has_value());
    return *target;
  }

 private:
  void take(std::shared_ptr<HttpExchange> exchange) {
    if (exchange->request().path == "/v1/models") {
      return exchange->respond({.body = R"({"data": [{"id": "stub"}]})", .headers = {}});
    }
    const auto body = parse_json(exchange->request().body, "body");
    if (!body->value("stream", false)) {
      return exchange->respond(
          {.body = R"({"choices": [], "usage": {"prompt_tokens": 48}})", .headers = {}});
    }
    {
      const std::lock_guard lock(mutex_);
      const auto now = Clock::now();
      if (!began_) began_ = now;
      const auto since = now - *began_;
      if (stall_for_.count() > 0 && !flushed_ && since >= stall_after_) {
        held_.push_back(std::move(exchange));
        return;
      }
    }
    answer(*exchange);
  }
  static void answer(HttpExchange& exchange) {
    const auto body = parse_json(exchange.request().body, "body");
    HttpResponse head;
    head.content_type = "text/event-stream";
    exchange.begin_stream(std::move(head));
    for (std::int64_t i = 0; i < body->value("max_tokens", std::int64_t{1}); ++i) {
      exchange.write("data: {\"choices\": [{\"text\": \"x\"}]}\n\n");
    }
    exchange.write("data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 7}}\n\n");
    exchange.write("data: [DONE]\n\n");
    exchange.finish();
  }
  void flush_after_stall() {
    for (;;) {
      std::this_thread::sleep_for(milliseconds(2));
      std::vector<std::shared_ptr<HttpExchange>> ready;
      {
        const std::lock_guard lock(mutex_);
        if (!began_ || Clock::now() - *began_ < stall_after_ + stall_for_) continue;
        ready.swap(held_);
        flushed_ = true;
      }
      for (const auto& exchange : ready) answer(*exchange);
      return;
    }
  }

  milliseconds stall_after_, stall_for_;
  std::mutex mutex_;
  std::optional<Clock::time_point> began_;
  bool flushed_ = false;
  std::vector<std::shared_ptr<HttpExchange>> held_;
  std::thread flusher_;
  std::unique_ptr<HttpServer> server_;
};

// Accepts connections one after another and sends fixed bytes on each, then closes it.
class RawServer {
 public:
  explicit RawServer(std::string answer) : answer_(std::move(answer)) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_, 64), 0);
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~RawServer() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  LoadTarget target() const {
    LoadTarget target = *parse_target(fmt::format("127.0.0.1:{}", port_));
    target.model = "raw";
    return target;
  }

 private:
  void serve() {
    for (;;) {
      const int client = ::accept(socket_, nullptr, nullptr);
      if (client < 0) return;
      std::string request;
      char bytes[4096];
      while (request.find("\r\n\r\n") == std::string::npos || request.back() != '}') {
        const auto got = ::recv(client, bytes, sizeof(bytes), 0);
        if (got <= 0) break;
        request.append(bytes, static_cast<std::size_t>(got));
      }
      if (::send(client, answer_.data(), answer_.size(), MSG_NOSIGNAL) < 0) {
        // The client is gone; the next one may not be.
      }
      ::close(client);
    }
  }
  std::string answer_;
  int socket_ = -1;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

PlanOptions options_of(const char* mode, double duration_s, double rate = 1) {
  PlanOptions options;
  options.mode = mode;
  options.duration_s = duration_s;
  options.rate = rate;
  return options;
}

LoadOptions without_calibration() {
  LoadOptions options;
  options.calibrate = false;
  return options;
}

LoadPlan plan_of(PlanOptions options) {
  std::vector<std::string> notes;
  options.input.a = 8;
  options.output.a = 4;
  auto plan = plan_load(options, nullptr, notes);
  EXPECT_TRUE(plan.has_value()) << plan.error().message;
  return *std::move(plan);
}

LoadReport run(const LoadTarget& target, const LoadPlan& plan, LoadOptions options = {},
               LoadRun* keep = nullptr) {
  LoadSlo slo;
  slo.ttft_s = 1.0;
  auto made = run_load(target, plan, options);
  EXPECT_TRUE(made.has_value()) << made.error().message;
  LoadReport report = report_load(plan, *made, slo, "stub");
  if (keep != nullptr) *keep = *std::move(made);
  return report;
}

TEST(Load, StreamsAreCountedAndTimed) {
  const StubServer server;
  LoadRun made;
  const auto report = run(server.target(), plan_of(options_of("poisson", 1, 50)), {}, &made);
  EXPECT_GT(report.whole.requests, 20);
  EXPECT_EQ(report.whole.ok, report.whole.requests);
  EXPECT_EQ(report.whole.output_tokens, 4 * report.whole.ok);
  EXPECT_EQ(report.whole.input_tokens, 7 * report.whole.ok);
  EXPECT_EQ(report.whole.short_outputs, 0);
  EXPECT_DOUBLE_EQ(report.whole.attainment, 1);
  for (const LoadRecord& record : made.records) {
    EXPECT_GE(record.sent_ns, record.intended_ns);
    EXPECT_GE(record.first_ns, record.sent_ns);
    EXPECT_GE(record.end_ns, record.first_ns);
    EXPECT_EQ(record.gaps_s.size(), 3U);
  }
}

// The stub answers nothing for 2 s. A user whose request was due in that time waited; a
// client that only asks again once it has its answer never sends those requests.
TEST(Load, AStallShowsInTheOpenLoopAndHidesInAClosedOne) {
  {
    const StubServer server(milliseconds(500), milliseconds(2000));
    const auto open = run(server.target(), plan_of(options_of("poisson", 4, 100)));
    EXPECT_EQ(open.whole.ok, open.whole.requests);
    EXPECT_GT(open.whole.ttft_s.summary.p99, 1.8);
    EXPECT_GT(open.whole.ttft_s.summary.p90, 1.2);  // half of the requests met the stall
  }
  {
    const StubServer server(milliseconds(500), milliseconds(2000));
    PlanOptions one_at_once = options_of("closed", 4);
    one_at_once.concurrency = 1;
    const auto closed = run(server.target(), plan_of(one_at_once));
    EXPECT_GT(closed.whole.requests, 200);
    EXPECT_GT(closed.whole.ttft_s.summary.max, 1.8);
    EXPECT_LT(closed.whole.ttft_s.summary.p99, 0.5);  // hidden
  }
  {
    // An open loop that may hold few connections sends late: its own clock hides the stall
    // where it counts from sending, and shows it where it counts from the intended time.
    const StubServer server(milliseconds(500), milliseconds(2000));
    LoadOptions two_connections;
    two_connections.max_connections = 2;
    const auto narrow =
        run(server.target(), plan_of(options_of("poisson", 4, 200)), two_connections);
    EXPECT_GT(narrow.whole.ttft_s.summary.p99, 1.5);
    EXPECT_LT(narrow.whole.ttft_from_send_s.summary.p90, 0.5);
    EXPECT_GT(narrow.whole.lateness_s.summary.p90, 0.5);
  }
}

TEST(Load, FiveHundredSmallStreamsASecond) {
  const StubServer server;
  const auto report = run(server.target(), plan_of(options_of("poisson", 4, 500)));
  EXPECT_EQ(report.whole.ok, report.whole.requests);
  EXPECT_NEAR(static_cast<double>(report.whole.requests), 2000, 200);
  RecordProperty("lateness_p99_ms",
                 fmt::format("{:.3f}", 1000 * report.whole.lateness_s.summary.p99));
  // A claim about a quiet machine.
  if (test::slow_tests()) {
    EXPECT_LT(report.whole.lateness_s.summary.p99, 0.005);
  }
}

TEST(Load, FailuresAreLabelledAndNeverEndTheRun) {
  struct Case {
    const char* answer;
    const char* label;
  };
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
  const std::string token = "data: {\"choices\": [{\"text\": \"x\"}]}\n\n";
  const std::string cut = head + "Transfer-Encoding: chunked\r\n\r\n100\r\n" + token;
  const std::string unended = head + "\r\n" + token;
  const std::string odd = head + "\r\ndata: {\"choices\": \n\n";
  const std::string error = head + "\r\ndata: {\"error\": {\"message\": \"no memory\"}}\n\n";
  const Case cases[] = {
      {"", "reset"},
      {"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "unavailable"},
      {"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n", "too_many"},
      {"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n", "client_error"},
      {"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", "server_error"},
      {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
       "malformed"},
      {"SSH-2.0-OpenSSH\r\n\r\n", "malformed"},
      {cut.c_str(), "truncated"},
      {unended.c_str(), "truncated"},
      {odd.c_str(), "malformed"},
      {error.c_str(), "server_error"},
  };
  for (const Case& each : cases) {
    const RawServer server(each.answer);
    const auto report =
        run(server.target(), plan_of(options_of("poisson", 0.25, 40)), without_calibration());
    ASSERT_GT(report.whole.requests, 0);
    EXPECT_EQ(report.whole.ok, 0);
    EXPECT_EQ(report.whole.failures.size(), 1U) << each.answer;
    EXPECT_EQ(report.whole.failures.begin()->first, each.label) << each.answer;
    EXPECT_EQ(report.whole.failures.begin()->second, report.whole.requests);
    EXPECT_EQ(report.whole.attainment, 0);
  }
}

TEST(Load, ADeadServerIsSaidBeforeTheRunAndATimeoutInIt) {
  LoadTarget nobody = *parse_target("http://127.0.0.1:1");
  const auto plan = plan_of(options_of("poisson", 0.5, 20));
  const auto failed = run_load(nobody, plan, {});
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable);
  nobody.model = "x";
  const auto refused = run(nobody, plan, without_calibration());
  EXPECT_EQ(refused.whole.failures.begin()->first, "refused");
  const StubServer silent(milliseconds(0), milliseconds(1500));
  LoadOptions impatient;
  impatient.timeout_s = 0.3;
  const auto slow = run(silent.target(), plan, impatient);
  EXPECT_EQ(slow.whole.failures.at("timeout"), slow.whole.requests);
}

TEST(Load, LaterTurnsWaitForTheAnswerBefore) {
  workload::RequestTrace trace;
  trace.labels = {""};
  trace.sessions = {"a"};
  for (int i = 0; i < 3; ++i) {
    workload::Request row;
    row.time_ns = i * 100'000'000;
    row.input_tokens = 8;
    row.output_tokens = 2;
    row.session = 0;
    trace.rows.push_back(row);
  }
  std::vector<std::string> notes;
  PlanOptions options = options_of("replay", 0);
  options.session_closed = true;
  const auto plan = plan_load(options, &trace, notes);
  ASSERT_TRUE(plan.has_value());
  const StubServer server(milliseconds(0), milliseconds(700));  // the first answer takes 0.7 s
  LoadRun made;
  run(server.target(), *plan, {}, &made);
  for (int i = 1; i < 3; ++i) {
    const auto k = static_cast<std::size_t>(i);
    EXPECT_EQ(made.records[k].intended_ns, made.records[k - 1].end_ns + 100'000'000);
  }
  EXPECT_GT(made.records[1].intended_ns, 700'000'000);
}

TEST(Load, ARecordedRunIsATraceThatReplaysTheSameTimes) {
  const StubServer server;
  LoadRun first, second;
  run(server.target(), plan_of(options_of("gamma", 1, 60)), {}, &first);
  const auto file =
      std::filesystem::temp_directory_path() / fmt::format("weft_load_{}", ::getpid());
  ASSERT_TRUE(write_load_csv(first, file).has_value());
  const auto loaded = workload::load_requests(file);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  EXPECT_EQ(loaded->tally.dropped(), 0);
  std::vector<std::string> notes;
  const auto plan = plan_load(options_of("replay", 0), &loaded->trace, notes);
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->requests.size(), first.records.size());
  for (std::size_t i = 0; i < first.records.size(); ++i) {
    EXPECT_EQ(plan->requests[i].at_ns, first.records[i].intended_ns - first.records[0].intended_ns);
    EXPECT_EQ(plan->requests[i].input_tokens, first.records[i].input_tokens);
  }
  const auto page = file.string() + ".html";
  ASSERT_TRUE(write_load_page(report_load(*plan, first, {}, "stub"), first, page).has_value());
  EXPECT_GT(std::filesystem::file_size(page), 5000U);
  std::filesystem::remove(file);
  std::filesystem::remove(page);
}

TEST(Load, PlansHitTheirRates) {
  const auto poisson = plan_of(options_of("poisson", 100, 100));
  EXPECT_NEAR(static_cast<double>(poisson.requests.size()), 10'000, 350);
  PlanOptions rising = options_of("ramp", 100);
  rising.rate_from = 10;
  rising.rate_to = 190;
  const auto ramp = plan_of(rising);
  EXPECT_NEAR(static_cast<double>(ramp.requests.size()), 10'000, 350);
  std::size_t early = 0;
  for (const auto& request : ramp.requests) early += request.at_ns < 50'000'000'000;
  EXPECT_NEAR(static_cast<double>(early), 2'750, 200);  // (10 + 100) / 2 * 50
  PlanOptions levels = options_of("sweep", 50);
  levels.levels = {10, 20};
  EXPECT_EQ(plan_of(levels).stages.size(), 2U);
  std::vector<std::string> notes;
  PlanOptions nobody = options_of("closed", 1);
  nobody.concurrency = 0;
  for (const PlanOptions& bad : {options_of("poisson", 1, 0), options_of("walk", 1),
                                 options_of("replay", 1), options_of("sweep", 1), nobody}) {
    EXPECT_FALSE(plan_load(bad, nullptr, notes).has_value()) << bad.mode;
  }
}

TEST(Load, UrlsAndPromisesAreRead) {
  const auto target = parse_target("http://[::1]:8080/api/v1/");
  ASSERT_TRUE(target.has_value());
  EXPECT_EQ(target->host, "::1");
  EXPECT_EQ(target->port, "8080");
  EXPECT_EQ(target->prefix, "/api");
  EXPECT_THAT(parse_target("https://a").error().message, HasSubstr("TLS"));
  EXPECT_FALSE(parse_target("http://:80").has_value());
  EXPECT_FALSE(parse_target("http://a:b").has_value());
  const auto slo = parse_slo("ttft=500ms, e2e=10s,tpot=0.05");
  ASSERT_TRUE(slo.has_value());
  EXPECT_DOUBLE_EQ(*slo->ttft_s, 0.5);
  EXPECT_DOUBLE_EQ(*slo->e2e_s, 10);
  EXPECT_DOUBLE_EQ(*slo->tpot_s, 0.05);
  for (const char* bad : {"ttft", "ttft=0", "speed=1", "ttft=x"}) {
    EXPECT_FALSE(parse_slo(bad).has_value()) << bad;
  }
}

TEST(Load, IntervalsOfQuantilesCoverThem) {
  // 95 % intervals of p90 of a uniform sample, over 400 samples: most cover 0.9.
  int covered = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Rng rng(seed, RngUse::kTest);
    std::vector<double> x;
    for (int i = 0; i < 300; ++i) x.push_back(static_cast<double>(rng.next_uniform()));
    std::ranges::sort(x);
    const Interval interval = quantile_interval(x, 0.9);
    covered += interval.low <= 0.9 && 0.9 <= interval.high;
  }
  EXPECT_GT(covered, 370);
  EXPECT_LT(covered, 400);
}

}  // namespace
}  // namespace weft::serve
