// Every model family against transformers: tests/fixtures/families, written by
// tests/fixtures/make_families.py.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "tests/support/data.h"
#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/model/load.h"
#include "weft/nn/transformer.h"

namespace weft::nn {
namespace {

class Families : public ::testing::TestWithParam<const char*> {};

std::vector<float> run(const TransformerWeights& weights, const std::vector<std::int32_t>& ids,
                       std::int64_t chunk, ThreadPool& pool) {
  const auto count = static_cast<std::int64_t>(ids.size());
  KvPool kv(weights.config, (count + kAttentionBlock - 1) / kAttentionBlock);
  std::vector<std::int32_t> table;
  while (kv.free_pages() > 0) table.push_back(*kv.allocate());
  const std::span<const std::int32_t> tables[] = {table};
  Transformer transformer(std::make_shared<const TransformerWeights>(weights), pool);
  std::vector<float> all, logits;
  for (std::int64_t begin = 0; begin < count; begin += chunk) {
    std::vector<TokenRow> rows;
    for (std::int64_t i = begin; i < std::min(count, begin + chunk); ++i) {
      rows.push_back({ids[static_cast<std::size_t>(i)], 0, static_cast<std::int32_t>(i), true});
    }
    transformer.forward(rows, tables, kv, logits);
    all.insert(all.end(), logits.begin(),
               logits.begin() + std::ssize(rows) * weights.config.vocab_size);
  }
  return all;
}

TEST_P(Families, LogitsAreThoseOfTransformers) {
  const auto folder =
      std::filesystem::path(WEFT_SOURCE_DIR) / "tests/fixtures/families" / GetParam();
  const auto text = read_file(folder / "expected.json");
  ASSERT_TRUE(text) << text.error().message;
  const auto expected = parse_json(*text, "expected.json");
  ASSERT_TRUE(expected) << expected.error().message;
  const std::vector<std::int32_t> ids = (*expected)["ids"];
  const std::vector<std::int64_t> positions = (*expected)["positions"];
  const auto model = model::load_model(folder.string());
  ASSERT_TRUE(model) << model.error().message;
  ThreadPool pool(2);
  const auto weights = build_weights(model->config, model->weights, Compute::kF32, pool);
  ASSERT_TRUE(weights) << weights.error().message;
  const auto vocab = static_cast<std::size_t>(model->config.vocab_size);
  const std::vector<float> logits = run(**weights, ids, 512, pool);
  for (std::size_t p = 0; p < positions.size(); ++p) {
    const std::vector<double> want = (*expected)["logits"][p];
    ASSERT_EQ(want.size(), vocab);
    for (std::size_t v = 0; v < vocab; ++v) {
      const float got = logits[static_cast<std::size_t>(positions[p]) * vocab + v];
      // Five decimals in the fixture, logits of up to 7.
      ASSERT_NEAR(static_cast<double>(got), want[v], 5e-5) << "position " << positions[p];
    }
  }
  // Chunked prefill and decode give the same bits.
  for (const std::int64_t chunk : {1, 7, 32}) EXPECT_EQ(run(**weights, ids, chunk, pool), logits);
  const auto bf16 = build_weights(model->config, model->weights, Compute::kBF16, pool);
  ASSERT_TRUE(bf16);
  EXPECT_EQ(run(**bf16, ids, 1, pool), run(**bf16, ids, 512, pool));
}

INSTANTIATE_TEST_SUITE_P(All, Families,
                         ::testing::Values("llama", "llama_tied_bias", "llama3_rope",
                                           "llama_linear_rope", "llama_yarn", "mistral_window",
                                           "qwen2", "qwen3", "gpt2"));

}  // namespace
}  // namespace weft::nn
