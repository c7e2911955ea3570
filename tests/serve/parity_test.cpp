// Real models against what other programs make of them. The fixtures are written by
// tests/fixtures/make_smollm2_greedy.py and hold prompts of ours, token ids and
// log-probabilities.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/support/data.h"
#include "weft/base/file.h"
#include "weft/base/hash.h"
#include "weft/base/json.h"
#include "weft/model/load.h"
#include "weft/serve/engine.h"
#include "weft/serve/evaluate.h"

namespace weft::serve {
namespace {

struct Case {
  std::string prompt;
  std::vector<model::TokenId> prompt_ids, reply_ids;
  std::vector<double> logprobs;
};

std::vector<Case> greedy_cases() {
  const auto text =
      read_file(std::filesystem::path(WEFT_SOURCE_DIR) / "tests/fixtures/smollm2_greedy.json");
  EXPECT_TRUE(text) << text.error().message;
  const auto json = parse_json(*text, "smollm2_greedy.json");
  EXPECT_TRUE(json) << json.error().message;
  std::vector<Case> cases;
  for (const Json& one : (*json)["cases"]) {
    cases.push_back({one["prompt"], one["prompt_ids"], one["reply_ids"], one["logprobs"]});
  }
  return cases;
}

// Greedy replies of llama.cpp on the F32 file, and the log-probabilities of
// transformers, for 50 prompts of up to 64 tokens.
TEST(Parity, SmolLm2InF32EqualsLlamaCppAndTransformers) {
  const auto path = test::smollm2_file();
  if (path.empty()) GTEST_SKIP() << "smollm2-135m-instruct is not fetched";
  const auto model = model::load_model(path.string());
  ASSERT_TRUE(model) << model.error().message;
  ThreadPool pool;
  const auto weights = nn::build_weights(model->config, model->weights, nn::Compute::kF32, pool);
  ASSERT_TRUE(weights) << weights.error().message;
  const std::vector<Case> cases = greedy_cases();
  ASSERT_EQ(cases.size(), 50U);
  Engine engine(*weights, model->tokenizer, {.max_context = 256}, pool);
  std::vector<GenerationRequest> requests;
  for (const Case& one : cases) {
    GenerationRequest request;
    request.prompt = one.prompt_ids;
    request.sampling.max_tokens = 64;
    request.sampling.top_logprobs = 0;
    requests.push_back(std::move(request));
  }
  const auto completions = generate(engine, std::move(requests));
  ASSERT_TRUE(completions) << completions.error().message;
  double largest = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    std::vector<model::TokenId> ids;
    for (const SampledToken& token : (*completions)[i].tokens) ids.push_back(token.token);
    ASSERT_EQ(ids, cases[i].reply_ids) << cases[i].prompt;
    for (std::size_t t = 0; t < ids.size(); ++t) {
      const double ours = static_cast<double>((*completions)[i].tokens[t].logprob);
      largest = std::max(largest, std::abs(ours - cases[i].logprobs[t]));
    }
    if (model->tokenizer) {
      EXPECT_EQ(model->tokenizer->encode(cases[i].prompt), cases[i].prompt_ids);
    }
  }
  EXPECT_LT(largest, 1e-3);
  RecordProperty("largest_logprob_difference", std::to_string(largest));
  std::printf("largest difference of a log-probability: %.2e\n", largest);
}

// The text that karpathy/llama2.c holds as expected_stdout in test_all.py (464 bytes,
// 200 tokens from the BOS alone), by its digest.
constexpr const char* kGoldenDigest =
    "beeb5cb46785efee81a8545300b31e396b595e5ce6f3b77db201545501981d14";

Result<std::string> story_of(const std::filesystem::path& file) {
  WEFT_ASSIGN(const model::Model model, model::load_model(file.string()));
  ThreadPool pool(1);
  WEFT_ASSIGN(const auto weights,
              nn::build_weights(model.config, model.weights, nn::Compute::kF32, pool));
  Engine engine(weights, model.tokenizer, {}, pool);
  GenerationRequest request;
  request.prompt = {1};
  request.sampling.max_tokens = 200;
  WEFT_ASSIGN(const auto completions, generate(engine, {request}));
  return completions.front().text;
}

TEST(Parity, Stories260KTellsTheGoldenStory) {
  WEFT_NEED_DATA(path, "models/stories260K/stories260K.bin");
  const auto text = story_of(path);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->size(), 464U);
  EXPECT_EQ(to_hex(sha256(bytes_of(*text))), kGoldenDigest) << *text;
}

// The same file with each layer's matrices transposed: sound by every check of its
// format, but it predicts English worse than guessing.
TEST(Parity, TheDamagedCopyIsFlagged) {
  WEFT_NEED_DATA(good, "models/stories260K/stories260K.bin");
  WEFT_NEED_DATA(damaged_file, "models/damaged/stories260K.bin");
  WEFT_NEED_DATA(vocabulary, "models/stories260K/tok512.bin");
  // A checkpoint needs its tokenizer beside it.
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "weft_damaged_stories";
  std::filesystem::create_directories(folder);
  const auto replace = std::filesystem::copy_options::overwrite_existing;
  const std::filesystem::path damaged = folder / "stories260K.bin";
  std::filesystem::copy_file(damaged_file, damaged, replace);
  std::filesystem::copy_file(vocabulary, folder / "tok512.bin", replace);
  const auto sound = model::load_model(good.string());
  ASSERT_TRUE(sound) << sound.error().message;
  const auto text = story_of(damaged);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_NE(to_hex(sha256(bytes_of(*text))), kGoldenDigest);

  const auto story = sound->tokenizer->encode(
      "Once upon a time there was a little girl who had a red ball. She played with it in the "
      "park every day. One day she lost it and was very sad. Her mom helped her to find it.");
  ThreadPool pool(1);
  const auto perplexity = [&](const std::filesystem::path& path) {
    const auto model = model::load_model(path.string());
    EXPECT_TRUE(model) << model.error().message;
    const auto weights = nn::build_weights(model->config, model->weights, nn::Compute::kF32, pool);
    const auto result = evaluate(*weights, nullptr, story,
                                 {.window = std::ssize(story), .windows = 1, .skip = 0}, pool);
    EXPECT_TRUE(result) << result.error().message;
    return result->perplexity;
  };
  EXPECT_LT(perplexity(good), 20);
  EXPECT_GT(perplexity(damaged), static_cast<double>(sound->config.vocab_size));
}

}  // namespace
}  // namespace weft::serve
