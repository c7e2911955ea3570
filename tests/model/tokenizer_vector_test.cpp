// llama.cpp's test vectors: models/ggml-vocab-*.gguf with .inp texts and .out ids.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/support/data.h"
#include "weft/model/gguf.h"
#include "weft/model/tokenizer.h"

namespace weft::model {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<std::string> split_inputs(const std::string& text) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> parts;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find(kSeparator, at);
    if (end == std::string::npos) {
      parts.push_back(text.substr(at));
      return parts;
    }
    parts.push_back(text.substr(at, end - at));
    at = end + kSeparator.size();
  }
}

class GgufVocabulary : public testing::TestWithParam<std::string> {};

TEST_P(GgufVocabulary, GivesTheIdsOfLlamaCppsVectors) {
  WEFT_NEED_DATA(path, "tokenizers/ggml-vocab/ggml-vocab-" + GetParam() + ".gguf");
  auto file = GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  auto tokenizer = tokenizer_from_gguf(**file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  std::vector<std::string> inputs = split_inputs(read_text(path.string() + ".inp"));
  std::istringstream expected(read_text(path.string() + ".out"));
  std::string line;
  std::size_t checked = 0;
  for (const std::string& input : inputs) {
    if (!std::getline(expected, line)) break;
    std::istringstream numbers(line);
    std::vector<TokenId> ids;
    for (TokenId id; numbers >> id;) ids.push_back(id);
    EXPECT_EQ((*tokenizer)->encode(input, {.add_special = false}), ids)
        << "text " << checked << ": " << testing::PrintToString(input);
    ++checked;
  }
  EXPECT_GE(checked, 40U);
}

INSTANTIATE_TEST_SUITE_P(Data, GgufVocabulary,
                         testing::Values("gpt-2", "deepseek-coder", "llama-spm", "phi-3",
                                         "bert-bge"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace weft::model
