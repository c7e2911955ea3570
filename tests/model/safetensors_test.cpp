// safetensors files: what is read, what is refused by name, and round trips.
#include "weft/model/safetensors.h"

#include <cstring>
#include <fstream>

#include "tests/support/data.h"
#include "weft/base/json.h"
#include "weft/model/huggingface.h"

namespace weft::model {
namespace {

// A file in memory: header length, header, `data` zero bytes.
std::string file_of(const std::string& header, std::size_t data) {
  std::string out(8, '\0');
  const auto size = static_cast<std::uint64_t>(header.size());
  std::memcpy(out.data(), &size, 8);
  return out + header + std::string(data, '\0');
}

Result<std::shared_ptr<const SafetensorsFile>> parse(const std::string& bytes) {
  return SafetensorsFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "test");
}

std::filesystem::path fresh_folder(const std::string& name) {
  const auto folder = std::filesystem::path(testing::TempDir()) / ("weft_safetensors_" + name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

struct Bad {
  const char* what;
  std::string bytes;
  ErrorCode code;
  const char* says;
};

TEST(Safetensors, RefusesFilesThatAreNotWhatTheyClaim) {
  const std::string deep(2000, '[');
  const std::vector<Bad> cases = {
      {"empty", "", ErrorCode::kCorrupt, "fewer than the 8"},
      {"cut header", file_of("{}", 0).substr(0, 9), ErrorCode::kCorrupt, "the file is cut"},
      {"oversized header", std::string(7, '\xff') + std::string("\x7f{}"), ErrorCode::kCorrupt,
       "claims a header"},
      {"not JSON", file_of("{\"a\":", 0), ErrorCode::kCorrupt, "test (header)"},
      {"array", file_of("[]", 0), ErrorCode::kCorrupt, "does not begin"},
      {"deep JSON", file_of("{\"a\":" + deep, 0), ErrorCode::kCorrupt, "test (header)"},
      {"duplicate names",
       file_of(
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
           2),
       ErrorCode::kCorrupt, "test (header)"},
      {"unknown type", file_of(R"({"a":{"dtype":"F7","shape":[1],"data_offsets":[0,1]}})", 1),
       ErrorCode::kCorrupt, "unknown element type 'F7'"},
      {"type we do not read",
       file_of(R"({"w":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", 1),
       ErrorCode::kUnsupported, "'w' has element type F8_E4M3"},
      {"size does not match",
       file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4), ErrorCode::kCorrupt,
       "needs 8 bytes by its shape"},
      {"overflow",
       file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4),
       ErrorCode::kCorrupt, "overflows"},
      {"negative shape", file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
       ErrorCode::kCorrupt, "not a count"},
      {"fractional shape",
       file_of(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4),
       ErrorCode::kCorrupt, "not a count"},
      {"not-a-number shape",
       file_of(R"({"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}})", 4),
       ErrorCode::kCorrupt, "test (header)"},
      {"reversed offsets", file_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[4,0]}})", 4),
       ErrorCode::kCorrupt, "lies at 4 to 0"},
      {"hole",
       file_of(
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
           3),
       ErrorCode::kCorrupt, "a hole"},
      {"overlap",
       file_of(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
           3),
       ErrorCode::kCorrupt, "overlap"},
      {"past the end", file_of(R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", 8),
       ErrorCode::kCorrupt, "the file is cut"},
      {"bytes left over", file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2),
       ErrorCode::kCorrupt, "belong to none"},
      {"missing field", file_of(R"({"a":{"dtype":"U8","shape":[1]}})", 1), ErrorCode::kCorrupt,
       "exactly dtype"},
      {"bad metadata", file_of(R"({"__metadata__":{"a":1}})", 0), ErrorCode::kCorrupt,
       "not a string"},
  };
  for (const Bad& bad : cases) {
    const auto file = parse(bad.bytes);
    ASSERT_FALSE(file) << bad.what;
    EXPECT_EQ(file.error().code, bad.code) << bad.what << ": " << file.error().message;
    EXPECT_NE(file.error().message.find(bad.says), std::string::npos)
        << bad.what << ": " << file.error().message;
  }
}

TEST(Safetensors, EveryTruncationOfAGoodFileIsRefused) {
  const std::string good = file_of(
      R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}})",
      26);
  ASSERT_TRUE(parse(good));
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(parse(good.substr(0, n))) << n;
}

TEST(Safetensors, ReadsAPublishedFile) {
  WEFT_NEED_DATA(path, "models/safetensors/test.safetensors");
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->tensors().size(), 10U);
}

std::vector<TensorSource> numbered(const std::vector<float>& values) {
  const auto* data = reinterpret_cast<const std::byte*>(values.data());
  return {source_of("b.weight", {data, DType::kF32, {2, 2}}),
          source_of("a.weight", {data + 16, DType::kF32, {3}}),
          source_of("c.weight", {data, DType::kF32, {1, 4}})};
}

TEST(Safetensors, WritesShardsWithAnIndexAndReadsThemBack) {
  const auto folder = fresh_folder("shards");
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7};
  ASSERT_TRUE(write_safetensors_model(folder, numbered(values), 20));
  EXPECT_TRUE(std::filesystem::exists(folder / "model-00003-of-00003.safetensors"));
  auto files = open_safetensors_model(folder);
  ASSERT_TRUE(files) << files.error().message;
  ASSERT_EQ(files->size(), 3U);
  const TensorView* a = nullptr;
  for (const auto& file : *files) {
    if (file->find("a.weight") != nullptr) a = file->find("a.weight");
  }
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(std::memcmp(a->data, values.data() + 4, 12), 0);

  // A missing shard and an index that points elsewhere are named.
  std::filesystem::remove(folder / "model-00002-of-00003.safetensors");
  EXPECT_NE(open_safetensors_model(folder).error().message.find("model-00002"), std::string::npos);
  std::ofstream(folder / "model.safetensors.index.json")
      << R"({"weight_map":{"x":"../secret.safetensors"}})";
  EXPECT_EQ(open_safetensors_model(folder).error().code, ErrorCode::kCorrupt);
}

TEST(Safetensors, AFailedWriteLeavesNothing) {
  const auto folder = fresh_folder("failed");
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7};
  auto sources = numbered(values);
  sources[2].fill = [](std::span<std::byte>) -> Status {
    return fail(ErrorCode::kIo, "the source went away");
  };
  const auto status = write_safetensors_model(folder, std::move(sources), 1 << 30);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("c.weight"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

}  // namespace
}  // namespace weft::model
