// The engine's promise: what else runs changes nothing about a request's result.
#include "weft/serve/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "tests/support/tiny_model.h"

namespace weft::serve {
namespace {

using model::TokenId;
using ::testing::HasSubstr;
using Weights = std::shared_ptr<const nn::TransformerWeights>;

Weights tiny_weights(std::uint64_t seed, nn::Compute compute = nn::Compute::kF32) {
  ThreadPool pool(1);
  const auto config = test::tiny_config();
  auto weights = nn::build_weights(config, test::random_weights(config, seed), compute, pool);
  EXPECT_TRUE(weights) << weights.error().message;
  return *weights;
}

std::uint64_t test_seed() {
  const char* given = std::getenv("WEFT_TEST_SEED");
  const std::uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("WEFT_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

// A request of random length and sampling; some share a prefix, some a whole prompt.
GenerationRequest random_request(Rng& rng, std::int64_t longest_prompt,
                                 std::int64_t longest_reply) {
  GenerationRequest request;
  const std::uint32_t family = rng.next_below(4);
  const std::uint32_t length = 1 + rng.next_below(static_cast<std::uint32_t>(longest_prompt));
  for (std::uint32_t i = 0; i < length; ++i) {
    const bool shared = family != 0 && i < 20 * family;
    request.prompt.push_back(
        static_cast<TokenId>(shared ? (i * 7 + family * 13) % 96 : rng.next_below(96)));
  }
  SamplingParams& p = request.sampling;
  p.max_tokens = 1 + rng.next_below(static_cast<std::uint32_t>(longest_reply));
  p.temperature = rng.next_below(3) == 0 ? 0.0F : 0.8F;
  if (rng.next_below(3) == 0) p.top_k = 10;
  if (rng.next_below(3) == 0) p.top_p = 0.9F;
  if (rng.next_below(4) == 0) p.repetition_penalty = 1.2F;
  p.seed = rng.next_below(1000);
  p.stream = rng.next_below(3);
  p.top_logprobs = rng.next_below(2) == 0 ? 0 : 3;
  return request;
}

struct Outcome {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  FinishReason finish = FinishReason::kNone;
  bool operator==(const Outcome&) const = default;
};

void record(Outcome& outcome, const TokenEvent& event) {
  EXPECT_EQ(outcome.finish, FinishReason::kNone) << "an event after the last";
  if (event.token.token >= 0) {
    outcome.tokens.push_back(event.token.token);
    outcome.logprobs.push_back(event.token.logprob);
    for (const TokenLogprob& top : event.token.top) outcome.logprobs.push_back(top.logprob);
  }
  outcome.finish = event.finish;
}

Outcome alone(const Weights& weights, GenerationRequest request) {
  ThreadPool pool(1);
  EngineOptions options;
  options.kv_pages = 40;
  options.share_prefixes = false;
  Engine engine(weights, nullptr, options, pool);
  Outcome outcome;
  request.on_event = [&](const TokenEvent& event) { record(outcome, event); };
  EXPECT_TRUE(engine.submit(std::move(request)));
  while (engine.step()) {
  }
  return outcome;
}

void expect_no_pages_held(const Engine& engine) {
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.kv_pages_used, 0);
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
}

// Random arrivals, cancels, page shortages, chunk sizes and thread counts.
TEST(Engine, EveryScheduleGivesTheResultOfTheLoneRun) {
  const std::uint64_t seed = test_seed();
  std::int64_t preemptions = 0, shared = 0;
  for (const nn::Compute compute : {nn::Compute::kF32, nn::Compute::kBF16}) {
    const Weights weights = tiny_weights(7, compute);
    Rng rng(seed, RngUse::kTest, static_cast<std::uint64_t>(compute));
    std::vector<GenerationRequest> requests;
    std::vector<Outcome> expected;
    for (int i = 0; i < 40; ++i) {
      requests.push_back(random_request(rng, 100, 60));
      if (i % 4 == 3) requests.back().prompt = requests[requests.size() - 2].prompt;
      expected.push_back(alone(weights, requests.back()));
    }
    for (int round = 0; round < 12; ++round) {
      ThreadPool pool(1 + static_cast<int>(rng.next_below(2)));
      EngineOptions options;
      const std::int64_t chunks[] = {1, 3, 8, 33, 64, 512};
      options.max_batch_tokens = chunks[rng.next_below(6)];
      options.max_sequences = 1 + rng.next_below(40);
      options.kv_pages = 6 + rng.next_below(30);  // the longest request needs 5
      options.share_prefixes = rng.next_below(3) != 0;
      Engine engine(weights, nullptr, options, pool);
      std::vector<Outcome> got(requests.size());
      std::vector<std::uint64_t> ids(requests.size(), 0);
      std::vector<bool> cancelled(requests.size(), false);
      std::size_t next = 0;
      bool busy = true;
      while (next < requests.size() || busy) {
        while (next < requests.size() && (!busy || rng.next_below(3) == 0)) {
          GenerationRequest request = requests[next];
          request.on_event = [&outcome = got[next]](const TokenEvent& e) { record(outcome, e); };
          const auto id = engine.submit(std::move(request));
          ASSERT_TRUE(id) << id.error().message;
          ids[next++] = *id;
          busy = true;
        }
        if (next > 0 && rng.next_below(20) == 0) {
          const std::size_t victim = rng.next_below(static_cast<std::uint32_t>(next));
          if (got[victim].finish == FinishReason::kNone) cancelled[victim] = true;
          engine.cancel(ids[victim]);
        }
        busy = engine.step();
      }
      for (std::size_t i = 0; i < requests.size(); ++i) {
        if (cancelled[i]) {
          // A prefix of the result, or all of it if it ended in the same step.
          ASSERT_LE(got[i].tokens.size(), expected[i].tokens.size());
          EXPECT_TRUE(
              std::equal(got[i].tokens.begin(), got[i].tokens.end(), expected[i].tokens.begin()));
          EXPECT_NE(got[i].finish, FinishReason::kNone);
          continue;
        }
        ASSERT_EQ(got[i], expected[i])
            << "request " << i << ", round " << round << ", chunk " << options.max_batch_tokens
            << ", pages " << options.kv_pages << ", threads " << pool.threads();
      }
      expect_no_pages_held(engine);
      preemptions += engine.stats().preemptions_total;
      shared += engine.stats().shared_tokens_total;
    }
  }
  EXPECT_GT(preemptions, 0) << "the schedules never ran out of pages";
  EXPECT_GT(shared, 0) << "no prefix was ever shared";
}

TEST(Engine, AGroupComputesItsPromptOnce) {
  const Weights weights = tiny_weights(7);
  ThreadPool pool(2);
  Engine engine(weights, nullptr, {.kv_pages = 200}, pool);
  std::vector<GenerationRequest> requests(16);
  Rng rng(9, RngUse::kTest);
  for (int i = 0; i < 75; ++i) {
    requests[0].prompt.push_back(static_cast<TokenId>(rng.next_below(96)));
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = requests[0].prompt;
    requests[i].sampling.temperature = 1.0F;
    requests[i].sampling.stream = i;
    requests[i].sampling.max_tokens = 5;
    requests[i].sampling.ignore_eos = true;
  }
  const auto copies = requests;
  const auto completions = generate(engine, std::move(requests));
  ASSERT_TRUE(completions) << completions.error().message;
  // 75 prompt rows once, then the last prompt row and 4 reply rows of each.
  EXPECT_EQ(engine.stats().computed_tokens_total, 75 + 15 + 16 * 4);
  EXPECT_EQ(engine.stats().prompt_tokens_total, 16 * 75);
  bool differ = false;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const Outcome expected = alone(weights, copies[i]);
    std::vector<TokenId> tokens;
    for (const SampledToken& token : (*completions)[i].tokens) tokens.push_back(token.token);
    EXPECT_EQ(tokens, expected.tokens);
    differ = differ || (*completions)[i].tokens[0].token != (*completions)[0].tokens[0].token;
  }
  EXPECT_TRUE(differ) << "streams did not give different replies";
}

TEST(Engine, NewWeightsCountFromTheNextStep) {
  const Weights first = tiny_weights(1), second = tiny_weights(2);
  ThreadPool pool(1);
  Engine engine(first, nullptr, {.kv_pages = 60}, pool);
  GenerationRequest request;
  for (int i = 0; i < 70; ++i) request.prompt.push_back((i * 5) % 96);
  request.sampling.max_tokens = 12;
  request.sampling.top_logprobs = 0;
  request.sampling.ignore_eos = true;
  const auto run = [&] { return (*generate(engine, {request}))[0]; };
  const auto logprobs = [](const Completion& completion) {
    std::vector<float> values;
    for (const SampledToken& token : completion.tokens) values.push_back(token.logprob);
    return values;
  };
  const Completion before = run();
  engine.set_weights(second);
  const Completion after = run();
  EXPECT_EQ(logprobs(after), alone(second, request).logprobs);
  EXPECT_NE(logprobs(after), logprobs(before));
  engine.set_weights(first);
  EXPECT_EQ(logprobs(run()), logprobs(before));

  // In the middle of a reply: what is left is what the new weights make of the same
  // prompt and the tokens so far.
  Outcome outcome;
  GenerationRequest watched = request;
  watched.on_event = [&](const TokenEvent& event) {
    record(outcome, event);
    if (outcome.tokens.size() == 4) engine.set_weights(second);
  };
  ASSERT_TRUE(generate(engine, {watched}));
  ASSERT_EQ(outcome.tokens.size(), 12U);
  GenerationRequest rest = request;
  rest.prompt.insert(rest.prompt.end(), outcome.tokens.begin(), outcome.tokens.begin() + 4);
  rest.sampling.max_tokens = 8;
  const Outcome expected = alone(second, rest);
  EXPECT_EQ(std::vector<TokenId>(outcome.tokens.begin() + 4, outcome.tokens.end()),
            expected.tokens);
  expect_no_pages_held(engine);
}

TEST(Engine, ServesManyThreadsAndDrains) {
  const Weights weights = tiny_weights(7);
  ThreadPool pool(2);
  Engine engine(weights, nullptr, {.max_batch_tokens = 64, .kv_pages = 24}, pool);
  engine.start();
  std::atomic<int> ended{0}, wanted{0};
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      Rng rng(77, RngUse::kTest, static_cast<std::uint64_t>(client));
      for (int i = 0; i < 12; ++i) {
        GenerationRequest request = random_request(rng, 60, 20);
        request.on_event = [&](const TokenEvent& event) {
          if (event.finish != FinishReason::kNone) ++ended;
        };
        const auto id = engine.submit(std::move(request));
        ASSERT_TRUE(id) << id.error().message;
        ++wanted;
        if (i % 5 == 0) engine.cancel(*id);
        (void)engine.stats();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const auto drained = engine.drain(60);
  EXPECT_TRUE(drained) << drained.error().message;
  EXPECT_EQ(ended, wanted);
  const auto refused = engine.submit({.prompt = {1}, .sampling = {}, .on_event = {}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  engine.stop();
  expect_no_pages_held(engine);
}

TEST(Engine, StopEndsEveryRequest) {
  const Weights weights = tiny_weights(7);
  ThreadPool pool(1);
  int cancelled = 0;
  {
    Engine engine(weights, nullptr, {.max_sequences = 2, .kv_pages = 40}, pool);
    for (int i = 0; i < 5; ++i) {
      GenerationRequest request{.prompt = {1, 2, 3}, .sampling = {}, .on_event = {}};
      request.on_event = [&](const TokenEvent& event) {
        if (event.finish == FinishReason::kCancelled) ++cancelled;
      };
      ASSERT_TRUE(engine.submit(std::move(request)));
    }
    engine.step();
  }
  EXPECT_EQ(cancelled, 5);
}

TEST(Engine, RefusesWhatItCannotServe) {
  const Weights weights = tiny_weights(7);
  ThreadPool pool(1);
  Engine engine(weights, nullptr, {.kv_pages = 3, .max_queue = 2}, pool);
  EXPECT_EQ(engine.max_context(), 3 * nn::kAttentionBlock);
  const auto error = [&](GenerationRequest request) {
    const auto id = engine.submit(std::move(request));
    return id ? Error{ErrorCode::kInternal, "accepted"} : id.error();
  };
  GenerationRequest request;
  EXPECT_THAT(error(request).message, HasSubstr("no tokens"));
  request.prompt.assign(96, 1);
  EXPECT_THAT(error(request).message, HasSubstr("96"));
  request.prompt = {96};
  EXPECT_THAT(error(request).message, HasSubstr("outside the vocabulary"));
  request.prompt = {-1};
  EXPECT_THAT(error(request).message, HasSubstr("outside the vocabulary"));
  request.prompt = {1};
  request.sampling.top_p = 7;
  EXPECT_THAT(error(request).message, HasSubstr("top_p"));
  request.sampling = {};
  request.sampling.stop = {"x"};
  EXPECT_THAT(error(request).message, HasSubstr("tokenizer"));
  request.sampling = {};
  EXPECT_TRUE(engine.submit(request));
  EXPECT_TRUE(engine.submit(request));
  EXPECT_EQ(error(request).code, ErrorCode::kResourceExhausted);
  const auto all = generate(engine, std::vector<GenerationRequest>(20, request));
  ASSERT_TRUE(all) << "generate() must wait for room in the queue: " << all.error().message;
  EXPECT_EQ(all->size(), 20U);
}

TEST(Engine, AReplyEndsAtTheContextLimit) {
  const Weights weights = tiny_weights(7);
  ThreadPool pool(1);
  Engine engine(weights, nullptr, {.kv_pages = 2}, pool);
  GenerationRequest request;
  request.prompt.assign(50, 3);
  request.sampling.max_tokens = 1000;
  request.sampling.ignore_eos = true;
  const auto completions = generate(engine, {request, request});
  ASSERT_TRUE(completions);
  for (const Completion& completion : *completions) {
    EXPECT_EQ(completion.tokens.size(), 14U);
    EXPECT_EQ(completion.finish, FinishReason::kLength);
  }
}

TEST(Engine, DamagedWeightsEndInAnError) {
  auto config = test::tiny_config();
  model::WeightSet weights = test::random_weights(config, 3);
  auto* norm =
      const_cast<float*>(reinterpret_cast<const float*>(weights.find("model.norm.weight")->data));
  for (std::int64_t i = 0; i < config.hidden; ++i) norm[i] = std::nanf("");
  ThreadPool pool(1);
  const auto built = nn::build_weights(config, weights, nn::Compute::kF32, pool);
  ASSERT_TRUE(built);
  Engine engine(*built, nullptr, {.kv_pages = 20}, pool);
  const auto completions = generate(engine, {{.prompt = {1, 2}, .sampling = {}, .on_event = {}}});
  ASSERT_TRUE(completions);
  EXPECT_EQ(completions->front().finish, FinishReason::kError);
  EXPECT_THAT(completions->front().error, HasSubstr("no finite logit"));
}

}  // namespace
}  // namespace weft::serve
