// llama2.c checkpoints: read, refused, written back byte for byte.
#include "weft/model/llama2c.h"

#include <cmath>
#include <cstring>

#include "tests/support/data.h"
#include "weft/base/file.h"
#include "weft/model/known_files.h"

namespace weft::model {
namespace {

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Llama2c, ReadsStories260KAndWritesItBackBitForBit) {
  WEFT_NEED_DATA(path, "models/stories260K/stories260K.bin");
  const auto model = load_llama2c(path);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->config.hidden, 64);
  EXPECT_EQ(model->config.intermediate, 172);
  EXPECT_EQ(model->config.kv_heads, 4);
  EXPECT_TRUE(model->config.tie_embeddings);
  EXPECT_EQ(find_llama2c_tokenizer(path, 512)->filename(), "tok512.bin");
  const auto copy = std::filesystem::path(testing::TempDir()) / "weft_stories_copy.bin";
  ASSERT_TRUE(write_llama2c(copy, model->config, model->weights));
  const std::string a = read_file(path).value();
  const std::string b = read_file(copy).value();
  ASSERT_EQ(a.size(), b.size());
  // Everything but the rotary tables is bits that were kept; those are computed anew.
  const std::size_t tables = 2 * 512 * 4 * 4;
  EXPECT_EQ(a.substr(0, a.size() - tables), b.substr(0, b.size() - tables));
  for (std::size_t i = a.size() - tables; i < a.size(); i += 4) {
    float x = 0, y = 0;
    std::memcpy(&x, a.data() + i, 4);
    std::memcpy(&y, b.data() + i, 4);
    ASSERT_NEAR(x, y, 1e-6) << i;
  }
}

TEST(Llama2c, TheDamagedCopyIsToldByItsDigestOnly) {
  WEFT_NEED_DATA(good, "models/stories260K/stories260K.bin");
  WEFT_NEED_DATA(damaged, "models/damaged/stories260K.bin");
  EXPECT_EQ(check_known_file(good, 1 << 30)->verdict, KnownFileVerdict::kIntact);
  const auto check = check_known_file(damaged, 1 << 30);
  EXPECT_EQ(check->verdict, KnownFileVerdict::kDiffers);
  EXPECT_NE(check->name.find("stories260K"), std::string::npos);
  EXPECT_TRUE(load_llama2c(damaged));  // its form is right
}

TEST(Llama2c, RefusesWhatItsHeaderDoesNotExplain) {
  const auto header = [](std::array<std::int32_t, 7> values) {
    return std::string(reinterpret_cast<const char*>(values.data()), sizeof values);
  };
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"", "fewer than"},
      {header({64, 172, 5, 8, 4, 512, 512}), "needs 1056540"},
      {header({64, 172, 5, 7, 4, 512, 512}), "do not fit"},
      {header({64, 172, 5, 0, 4, 512, 512}), "do not fit"},
      {header({64, 172, 5, 8, 3, 512, 512}), "kv_heads"},
      {header({64, -1, 5, 8, 4, 512, 512}), "intermediate"},
      {header({0x616b3432, 1, 5, 8, 4, 512, 512}), "version 1"},
      {header({INT32_MAX - 1, INT32_MAX, INT32_MAX, 2, 1, INT32_MIN, INT32_MAX}), "do not fit"},
  };
  for (const auto& [bytes, says] : cases) {
    const auto model = parse_llama2c(as_bytes(bytes), nullptr, "test");
    ASSERT_FALSE(model);
    EXPECT_NE(model.error().message.find(says), std::string::npos) << model.error().message;
  }
}

}  // namespace
}  // namespace weft::model
