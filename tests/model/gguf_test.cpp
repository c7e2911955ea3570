// GGUF files: what is read, and what is refused by name.
#include "weft/model/gguf.h"

#include <cstring>

#include "tests/support/data.h"
#include "weft/model/config.h"
#include "weft/model/gguf_model.h"
#include "weft/model/load.h"

namespace weft::model {
namespace {

TEST(Gguf, ReadsTheMetadataAndTensorsOfSmolLm2) {
  const auto path = test::smollm2_file();
  if (path.empty())
    GTEST_SKIP() << "smollm2-135m-instruct is not in the cache; run `weft model fetch`";
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->version(), 3U);
  EXPECT_EQ((*file)->tensors().size(), 272U);
  EXPECT_EQ((*file)->text("general.architecture").value(), "llama");
  EXPECT_EQ((*file)->texts("tokenizer.ggml.tokens").value().size(), 49152U);
  EXPECT_EQ((*file)->find_tensor("token_embd.weight")->view.dtype, DType::kQ8_0);

  const auto config = config_from_gguf(**file);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->hidden, 576);
  EXPECT_EQ(config->layers, 30);
  EXPECT_EQ(config->heads, 9);
  EXPECT_EQ(config->kv_heads, 3);
  EXPECT_EQ(config->head_dim, 64);
  EXPECT_EQ(config->intermediate, 1536);
  EXPECT_EQ(config->vocab_size, 49152);
  EXPECT_EQ(config->max_position, 8192);
  EXPECT_EQ(config->norm_eps, 1e-5);
  EXPECT_EQ(config->rope.theta, 100000.0);
  EXPECT_TRUE(config->tie_embeddings);
  EXPECT_EQ(count(*config).parameters, 134515008);
}

TEST(Gguf, LoadModelGivesEveryTensorUnderItsCanonicalName) {
  const auto path = test::smollm2_file();
  if (path.empty())
    GTEST_SKIP() << "smollm2-135m-instruct is not in the cache; run `weft model fetch`";
  const auto model = load_model(path.string());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->weights.tensors().size(), 272U);
  // Row 1 of a head in the half-split order is row 2 of the interleaved file.
  const auto file = GgufFile::open(path);
  const TensorView raw = (*file)->find_tensor("blk.3.attn_k.weight")->view;
  const TensorView k = model->weights.get("model.layers.3.self_attn.k_proj.weight").value();
  const std::int64_t row = k.bytes() / 192;
  const auto at = [&](const TensorView& v, std::int64_t r) { return v.data + r * row; };
  EXPECT_EQ(std::memcmp(at(k, 64 + 1), at(raw, 64 + 2), static_cast<std::size_t>(row)), 0);
  EXPECT_EQ(std::memcmp(at(k, 128 + 32 + 5), at(raw, 128 + 11), static_cast<std::size_t>(row)), 0);
}

TEST(Gguf, ReadsEveryVocabularyFile) {
  WEFT_NEED_DATA(folder, "tokenizers/ggml-vocab");
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const auto file = GgufFile::open(entry.path());
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_GT((*file)->texts("tokenizer.ggml.tokens").value().size(), 1000U);
    EXPECT_EQ(config_from_gguf(**file).error().code == ErrorCode::kNotFound ||
                  config_from_gguf(**file).error().code == ErrorCode::kUnsupported,
              true);
    ++files;
  }
  EXPECT_GT(files, 3);
}

}  // namespace
}  // namespace weft::model
