// Damaged GGUF files: cut anywhere, with numbers that do not fit, with any byte changed.
#include <cstring>
#include <fstream>

#include "tests/support/data.h"
#include "weft/base/file.h"
#include "weft/base/rng.h"
#include "weft/model/gguf.h"
#include "weft/model/gguf_model.h"
#include "weft/model/gguf_writer.h"

namespace weft::model {
namespace {

// A tiny Llama as GGUF bytes, written by our writer.
std::string tiny_model() {
  ModelConfig config;
  config.vocab_size = 5;
  config.hidden = config.intermediate = 8;
  config.layers = 1;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 4;
  config.max_position = 16;
  GgufMetadata metadata;
  EXPECT_TRUE(set_model_metadata(metadata, config));
  metadata.set_texts("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
  std::vector<TensorSource> sources;
  for (const TensorSpec& spec : tensor_specs(config)) {
    sources.push_back({gguf_from_canonical_name(spec.name), DType::kF32, spec.shape,
                       [](std::span<std::byte> out) -> Status {
                         std::memset(out.data(), 0, out.size());
                         return {};
                       }});
  }
  const auto path = std::filesystem::path(testing::TempDir()) / "weft_tiny.gguf";
  EXPECT_TRUE(write_gguf(path, metadata, std::move(sources)));
  return read_file(path).value();
}

Result<std::shared_ptr<const GgufFile>> parse(const std::string& bytes) {
  return GgufFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "test");
}

template <class T>
std::string with(std::string bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

void expect_error(const std::string& bytes, ErrorCode code, const char* says) {
  const auto file = parse(bytes);
  ASSERT_FALSE(file) << says;
  EXPECT_EQ(file.error().code, code) << file.error().message;
  EXPECT_NE(file.error().message.find(says), std::string::npos) << file.error().message;
}

TEST(GgufMutation, WhatTheWriterWritesReadsBack) {
  const std::string good = tiny_model();
  const auto file = parse(good);
  ASSERT_TRUE(file) << file.error().message;
  const auto config = config_from_gguf(**file);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->head_dim, 4);
  EXPECT_FALSE(config->tie_embeddings);
  EXPECT_TRUE(weights_from_gguf(*file, *config));
}

TEST(GgufMutation, EveryTruncationIsRefused) {
  const std::string good = tiny_model();
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(parse(good.substr(0, n))) << n;
}

TEST(GgufMutation, HeadersThatCannotBeAreRefusedByName) {
  const std::string good = tiny_model();
  expect_error("", ErrorCode::kCorrupt, "magic number");
  expect_error(with(good, 0, 'g'), ErrorCode::kCorrupt, "does not begin with 'GGUF'");
  expect_error("FUGG" + good.substr(4), ErrorCode::kUnsupported, "bytes swapped");
  expect_error(with(good, 4, std::uint32_t{0x03000000}), ErrorCode::kUnsupported, "big-endian");
  expect_error(with(good, 4, std::uint32_t{1}), ErrorCode::kUnsupported, "version 1");
  expect_error(with(good, 8, ~std::uint64_t{0}), ErrorCode::kCorrupt, "more than");
  expect_error(with(good, 16, ~std::uint64_t{0}), ErrorCode::kCorrupt, "more than");
  expect_error(with(good, 24, std::uint64_t{1} << 62), ErrorCode::kCorrupt, "metadata key 0");
  const std::size_t tokens = good.find("tokenizer.ggml.tokens") + 21;
  expect_error(with(good, tokens, std::uint32_t{77}), ErrorCode::kCorrupt, "unknown value type 77");
  expect_error(with(good, tokens + 4, std::uint32_t{9}), ErrorCode::kUnsupported,
               "array of arrays");
  expect_error(with(good, tokens + 8, ~std::uint64_t{0}), ErrorCode::kCorrupt,
               "'tokenizer.ggml.tokens' claims");
}

TEST(GgufMutation, TensorsThatCannotBeAreRefusedByName) {
  const std::string good = tiny_model();
  // After the name: dimensions u32, extents u64 each, type u32, offset u64.
  const std::size_t q = good.find("blk.0.attn_q.weight") + 19;
  expect_error(with(good, q, std::uint32_t{5}), ErrorCode::kCorrupt, "has 5 dimensions");
  expect_error(with(good, q + 4, std::uint64_t{0}), ErrorCode::kCorrupt,
               "'blk.0.attn_q.weight' has a dimension of 0");
  expect_error(with(good, q + 4, std::uint64_t{1} << 62), ErrorCode::kCorrupt,
               "'blk.0.attn_q.weight'");
  expect_error(with(good, q + 20, std::uint32_t{6}), ErrorCode::kUnsupported, "element type Q5_0");
  expect_error(with(good, q + 20, std::uint32_t{999}), ErrorCode::kUnsupported,
               "999 (unknown to GGML)");
  expect_error(with(good, q + 20, std::uint32_t{2}), ErrorCode::kCorrupt, "'blk.0.attn_q.weight'");
  expect_error(with(good, q + 24, std::uint64_t{1}), ErrorCode::kCorrupt, "alignment");
  expect_error(with(good, q + 24, std::uint64_t{0}), ErrorCode::kCorrupt, "overlap");
  expect_error(with(good, q + 24, std::uint64_t{1} << 40), ErrorCode::kCorrupt, "cut or damaged");
  std::string twice = good;
  twice.replace(good.find("blk.0.attn_v"), 12, "blk.0.attn_k");
  expect_error(twice, ErrorCode::kCorrupt, "appears twice");
}

TEST(GgufMutation, AnyByteChangedGivesAModelOrATypedError) {
  const std::string good = tiny_model();
  Rng rng(20, RngUse::kTest);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (std::uint32_t n = 1 + rng.next_below(3); n > 0; --n) {
      bytes[rng.next_below(static_cast<std::uint32_t>(bytes.size()))] =
          static_cast<char>(rng.next_below(256));
    }
    const auto file = parse(bytes);
    if (!file) {
      EXPECT_NE(file.error().code, ErrorCode::kInternal) << file.error().message;
      continue;
    }
    const auto config = config_from_gguf(**file);
    if (config) (void)weights_from_gguf(*file, *config);
  }
}

}  // namespace
}  // namespace weft::model
