// GGUF: the file format of GGML models (metadata, tensor table, aligned data).
// Format: docs/formats/gguf.md; after ggml's docs/gguf.md, versions 2 and 3.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/base/file.h"
#include "weft/base/result.h"
#include "weft/base/tensor_view.h"

namespace weft::model {

// Value types of the metadata, numbered as in the file.
enum class GgufType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
std::string_view to_string(GgufType type);

// One metadata value. Strings and arrays point into the file.
struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;       // of an array; else the same as type
  std::int64_t count = 1;                 // elements of an array
  std::span<const std::byte> bytes;       // scalars and arrays of scalars, little-endian, unaligned
  std::vector<std::string_view> strings;  // a string, or an array of strings
};

struct GgufTensor {
  std::string name;         // as in the file: "blk.0.attn_q.weight"
  TensorView view;          // shape slowest first (the file's dimensions reversed)
  std::int64_t offset = 0;  // from the start of the file
};

// A parsed file. Immutable; may be read from many threads. Everything it hands out
// points into the file's bytes and is valid while the object lives.
class GgufFile {
 public:
  // Maps and checks the whole table: errors name the file and the key or tensor.
  // kCorrupt: not what the format promises; kUnsupported: big-endian files, version
  // 1, nested arrays, tensor types outside dtype.h.
  static Result<std::shared_ptr<const GgufFile>> open(const std::filesystem::path& path);
  // The same over bytes in memory, which must outlive the object. `name` begins errors.
  static Result<std::shared_ptr<const GgufFile>> parse(std::span<const std::byte> bytes,
                                                       std::string name);

  const std::string& name() const { return name_; }
  std::uint32_t version() const { return version_; }
  std::int64_t alignment() const { return alignment_; }
  const std::vector<std::string>& keys() const { return keys_; }  // in file order
  const GgufValue* find(std::string_view key) const;              // nullptr when absent
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // Typed access. kNotFound when absent, kCorrupt when the type or range is wrong;
  // both name file and key. `integer` takes every integer type that fits, `number`
  // every numeric type.
  Result<std::string_view> text(std::string_view key) const;
  Result<std::int64_t> integer(std::string_view key) const;
  Result<double> number(std::string_view key) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::span<const std::string_view>> texts(std::string_view key) const;
  Result<std::vector<std::int64_t>> integers(std::string_view key) const;
  Result<std::vector<float>> numbers(std::string_view key) const;
  // The same with a fallback for an absent key (a wrong type is still an error).
  Result<std::string_view> text_or(std::string_view key, std::string_view fallback) const;
  Result<std::int64_t> integer_or(std::string_view key, std::int64_t fallback) const;
  Result<double> number_or(std::string_view key, double fallback) const;
  Result<bool> boolean_or(std::string_view key, bool fallback) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;

 private:
  GgufFile() = default;
  Status parse_bytes(std::span<const std::byte> bytes);
  Status check_layout(std::span<const std::byte> bytes, std::uint64_t data_start);
  Result<const GgufValue*> need(std::string_view key) const;

  std::optional<MappedFile> map_;
  std::string name_;
  std::uint32_t version_ = 0;
  std::int64_t alignment_ = 32;
  std::vector<std::string> keys_;
  std::unordered_map<std::string, GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> tensor_index_;
};

// GGML's number of an element type, and back. nullopt: GGML has no such type, or
// Weft does not read it.
std::optional<std::uint32_t> ggml_type(DType type);
std::optional<DType> dtype_from_ggml(std::uint32_t type);
// The name of any GGML type, for messages: "Q5_0", "type 99".
std::string ggml_type_name(std::uint32_t type);

}  // namespace weft::model
