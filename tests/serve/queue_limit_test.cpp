// The queue's limit, to the request: the engine is stepped by hand, so that nothing leaves the
// queue before all have arrived.
#include <gmock/gmock.h>

#include <chrono>

#include "tests/support/byte_tokenizer.h"
#include "tests/support/raw_client.h"
#include "tests/support/tiny_model.h"
#include "weft/serve/openai_service.h"

namespace weft::serve {
namespace {

using std::chrono::milliseconds;
using test::RawClient;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class QueueLimit : public ::testing::Test {
 protected:
  static constexpr std::int64_t kQueue = 5;

  void SetUp() override {
    model::ModelConfig config = test::tiny_config();
    tokenizer_ = std::make_shared<test::ByteTokenizer>(std::vector<std::string>{});
    config.vocab_size = tokenizer_->vocab_size();
    auto weights =
        nn::build_weights(config, test::random_weights(config, 1), nn::Compute::kF32, pool_);
    ASSERT_TRUE(weights) << weights.error().message;
    EngineOptions options;
    options.max_queue = kQueue;
    options.max_sequences = 2;
    engine_ = std::make_unique<Engine>(*weights, tokenizer_, options, pool_);
    service_ = std::make_unique<OpenAiService>(
        *engine_, tokenizer_, std::nullopt,
        OpenAiServiceOptions{.model_name = "tiny", .api_key = {}, .retry_after_seconds = 7});
    HttpServer::Hooks hooks;
    hooks.gate = [this](const HttpRequest& request) { return service_->gate(request); };
    hooks.handler = [this](const std::shared_ptr<HttpExchange>& exchange) {
      service_->handle(exchange);
    };
    auto server = HttpServer::start({.port = 0, .threads = 2}, std::move(hooks));
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }
  void TearDown() override {
    if (server_) server_->shutdown(1);
  }

  RawClient ask(int choices = 1) const {
    RawClient client(server_->port());
    const std::string body = fmt::format(
        R"({{"model": "tiny", "prompt": "abc", "max_tokens": 3, "temperature": 0, "n": {}}})",
        choices);
    client.send(
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                    "Connection: close\r\nContent-Length: {}\r\n\r\n{}",
                    body.size(), body));
    return client;
  }
  // Those of `clients` that the server has answered and closed, until there are `wanted`
  // (or 20 s are over), with their answers; they are taken out of `clients`.
  static std::vector<std::string> answered(std::vector<RawClient>& clients, std::size_t wanted) {
    std::vector<std::string> answers;
    std::vector<RawClient> open;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (answers.size() < wanted && std::chrono::steady_clock::now() < end) {
      open.clear();
      for (RawClient& client : clients) {
        if (client.ended(milliseconds(5))) {
          answers.push_back(client.read_to_end());
        } else {
          open.push_back(std::move(client));
        }
      }
      clients.swap(open);
    }
    return answers;
  }

  ThreadPool pool_{1};
  std::shared_ptr<test::ByteTokenizer> tokenizer_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<OpenAiService> service_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(QueueLimit, RefusesExactlyWhatDoesNotFitAndSaysWhenToComeBack) {
  constexpr std::size_t kRequests = 17;
  for (int round = 0; round < 3; ++round) {  // the queue is empty again each time
    std::vector<RawClient> clients;
    for (std::size_t i = 0; i < kRequests; ++i) clients.push_back(ask());
    for (const std::string& answer : answered(clients, kRequests - kQueue)) {
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 429")) << answer;
      EXPECT_THAT(answer, HasSubstr("Retry-After: 7")) << answer;
      EXPECT_THAT(answer, HasSubstr("rate_limit_error")) << answer;
    }
    ASSERT_EQ(clients.size(), static_cast<std::size_t>(kQueue));
    for (RawClient& client : clients) {
      EXPECT_FALSE(client.ended(milliseconds(20)));
      EXPECT_FALSE(client.has_answer());
    }
    while (engine_->step()) {
    }
    const auto done = answered(clients, kQueue);
    ASSERT_EQ(done.size(), static_cast<std::size_t>(kQueue));
    for (const std::string& answer : done)
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 200")) << answer;
  }
}

TEST_F(QueueLimit, MoreChoicesThanFitAreRefusedWholeAndLeaveNothingBehind) {
  std::vector<RawClient> clients;
  clients.push_back(ask(kQueue + 1));
  const auto refused = answered(clients, 1);
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_THAT(refused[0], StartsWith("HTTP/1.1 429"));
  while (engine_->step()) {
  }
  EXPECT_EQ(engine_->stats().generated_tokens_total, 0);
  for (int i = 0; i < kQueue + 3; ++i) clients.push_back(ask());
  for (const std::string& answer : answered(clients, 3)) {
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 429"));
  }
  EXPECT_EQ(clients.size(), static_cast<std::size_t>(kQueue));
  while (engine_->step()) {
  }
  for (const std::string& answer : answered(clients, kQueue)) {
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  }
}

}  // namespace
}  // namespace weft::serve
