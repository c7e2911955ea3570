#include "weft/model/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "weft/base/json.h"
#include "weft/model/output_file.h"

namespace weft::model {
namespace {

namespace fs = std::filesystem;

// The reference library's limit on the header.
constexpr std::uint64_t kMaxHeader = 100'000'000;

struct TypeName {
  std::string_view name;
  DType dtype;
};
constexpr std::array<TypeName, 10> kTypes = {{{"F64", DType::kF64},
                                              {"F32", DType::kF32},
                                              {"F16", DType::kF16},
                                              {"BF16", DType::kBF16},
                                              {"I64", DType::kI64},
                                              {"I32", DType::kI32},
                                              {"I16", DType::kI16},
                                              {"I8", DType::kI8},
                                              {"U8", DType::kU8},
                                              {"BOOL", DType::kBool}}};
constexpr std::array<std::string_view, 10> kOtherTypes = {
    "U16", "U32", "U64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "F6_E3M2", "C64"};

Result<DType> read_type(const std::string& file, const std::string& tensor,
                        const std::string& name) {
  for (const TypeName& type : kTypes) {
    if (type.name == name) return type.dtype;
  }
  if (std::ranges::find(kOtherTypes, name) != kOtherTypes.end()) {
    return fail(ErrorCode::kUnsupported,
                "{}: tensor '{}' has element type {}, which Weft does not read", file, tensor,
                name);
  }
  return fail(ErrorCode::kCorrupt, "{}: tensor '{}' has the unknown element type '{}'", file,
              tensor, name);
}

// A non-negative integer of the header; floats ("nan", 1.5, 1e3) are not integers.
Result<std::int64_t> read_count(const std::string& file, const std::string& tensor,
                                std::string_view field, const Json& value) {
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) ||
      value.get<std::int64_t>() < 0) {
    return fail(ErrorCode::kCorrupt, "{}: tensor '{}': {} holds {}, which is not a count", file,
                tensor, field, dump_json(value));
  }
  return value.get<std::int64_t>();
}

struct Entry {
  NamedTensor tensor;
  std::int64_t begin = 0, end = 0;
};

Result<Entry> read_entry(const std::string& file, const std::string& name, const Json& json) {
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    return fail(ErrorCode::kCorrupt,
                "{}: tensor '{}' must have exactly dtype, shape and data_offsets", file, name);
  }
  const Json& shape = json["shape"];
  const Json& offsets = json["data_offsets"];
  if (!json["dtype"].is_string() || !shape.is_array() || !offsets.is_array() ||
      offsets.size() != 2) {
    return fail(ErrorCode::kCorrupt,
                "{}: tensor '{}': dtype, shape or data_offsets has the wrong form", file, name);
  }
  Entry entry;
  entry.tensor.name = name;
  TensorView& view = entry.tensor.view;
  WEFT_ASSIGN(view.dtype, read_type(file, name, json["dtype"].get<std::string>()));
  std::int64_t size = block_bytes(view.dtype);
  for (const Json& extent : shape) {
    WEFT_ASSIGN(const std::int64_t n, read_count(file, name, "shape", extent));
    if (__builtin_mul_overflow(size, n, &size)) {
      return fail(ErrorCode::kCorrupt, "{}: the size of tensor '{}' overflows", file, name);
    }
    view.shape.push_back(n);
  }
  WEFT_ASSIGN(entry.begin, read_count(file, name, "data_offsets", offsets[0]));
  WEFT_ASSIGN(entry.end, read_count(file, name, "data_offsets", offsets[1]));
  if (entry.end < entry.begin || entry.end - entry.begin != size) {
    return fail(ErrorCode::kCorrupt,
                "{}: tensor '{}' needs {} bytes by its shape but lies at {} to {}", file, name,
                size, entry.begin, entry.end);
  }
  return entry;
}

std::string_view type_name(DType dtype) {
  for (const TypeName& type : kTypes) {
    if (type.dtype == dtype) return type.name;
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::open(const fs::path& path) {
  WEFT_ASSIGN(MappedFile map, MappedFile::open(path));
  std::shared_ptr<SafetensorsFile> file(new SafetensorsFile());
  file->name_ = path.string();
  file->map_ = std::move(map);
  WEFT_TRY(file->parse_bytes(file->map_->bytes()));
  return file;
}

Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::parse(
    std::span<const std::byte> bytes, std::string name) {
  std::shared_ptr<SafetensorsFile> file(new SafetensorsFile());
  file->name_ = std::move(name);
  WEFT_TRY(file->parse_bytes(bytes));
  return file;
}

Status SafetensorsFile::parse_bytes(std::span<const std::byte> bytes) {
  std::uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes) {
    return fail(ErrorCode::kCorrupt, "{}: has {} bytes, fewer than the 8 of a safetensors header",
                name_, bytes.size());
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeader) {
    return fail(ErrorCode::kCorrupt,
                "{}: claims a header of {} bytes; the format allows {}. Is it a safetensors file?",
                name_, header_bytes, kMaxHeader);
  }
  if (header_bytes > bytes.size() - 8) {
    return fail(ErrorCode::kCorrupt,
                "{}: claims a header of {} bytes but only {} follow; the file is cut", name_,
                header_bytes, bytes.size() - 8);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes);
  if (!text.starts_with('{')) {
    return fail(ErrorCode::kCorrupt, "{}: its header does not begin with '{{'", name_);
  }
  auto parsed = parse_json(text, name_ + " (header)");
  if (!parsed) return fail(ErrorCode::kCorrupt, "{}", parsed.error().message);
  const Json& header = *parsed;
  if (!header.is_object())
    return fail(ErrorCode::kCorrupt, "{}: its header is not a JSON object", name_);
  std::vector<Entry> entries;
  for (const auto& [key, value] : header.items()) {
    if (key != "__metadata__") {
      WEFT_ASSIGN(Entry entry, read_entry(name_, key, value));
      entries.push_back(std::move(entry));
      continue;
    }
    if (!value.is_object())
      return fail(ErrorCode::kCorrupt, "{}: __metadata__ is not an object", name_);
    for (const auto& [name, text_value] : value.items()) {
      if (!text_value.is_string()) {
        return fail(ErrorCode::kCorrupt, "{}: '{}' in __metadata__ is not a string", name_, name);
      }
      metadata_[name] = text_value.get<std::string>();
    }
  }
  std::ranges::stable_sort(entries, [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const std::byte* data = bytes.data() + 8 + header_bytes;
  const auto data_bytes = static_cast<std::int64_t>(bytes.size() - 8 - header_bytes);
  std::int64_t at = 0;
  for (Entry& entry : entries) {
    if (entry.begin != at) {
      return fail(ErrorCode::kCorrupt,
                  "{}: tensor '{}' begins at {} where the one before ends at {}; {}", name_,
                  entry.tensor.name, entry.begin, at,
                  entry.begin < at ? "they overlap" : "a hole is not allowed");
    }
    at = entry.end;
    if (at > data_bytes) {
      return fail(ErrorCode::kCorrupt,
                  "{}: tensor '{}' ends at {} of {} bytes of data; the file is cut", name_,
                  entry.tensor.name, at, data_bytes);
    }
    entry.tensor.view.data = data + entry.begin;
    index_.emplace(entry.tensor.name, tensors_.size());
    tensors_.push_back(std::move(entry.tensor));
  }
  if (at != data_bytes) {
    return fail(ErrorCode::kCorrupt, "{}: {} bytes after the last tensor belong to none", name_,
                data_bytes - at);
  }
  return {};
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto it = index_.find(std::string(name));
  return it == index_.end() ? nullptr : &tensors_[it->second].view;
}

Result<std::vector<std::shared_ptr<const SafetensorsFile>>> open_safetensors_model(
    const fs::path& path) {
  std::vector<std::shared_ptr<const SafetensorsFile>> files;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    WEFT_ASSIGN(auto file, SafetensorsFile::open(path));
    files.push_back(std::move(file));
    return files;
  }
  const fs::path index_path = path / "model.safetensors.index.json";
  if (fs::exists(path / "model.safetensors", error)) {
    WEFT_ASSIGN(auto file, SafetensorsFile::open(path / "model.safetensors"));
    files.push_back(std::move(file));
    return files;
  }
  if (!fs::exists(index_path, error)) {
    return fail(ErrorCode::kNotFound,
                "{}: has neither model.safetensors nor model.safetensors.index.json",
                path.string());
  }
  WEFT_ASSIGN(const std::string text, read_file(index_path, kMaxHeader));
  WEFT_ASSIGN(const Json index, parse_json(text, index_path.string()));
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object() ||
      index["weight_map"].empty()) {
    return fail(ErrorCode::kCorrupt, "{}: has no object 'weight_map'", index_path.string());
  }
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> shards;
  for (const auto& [tensor, value] : index["weight_map"].items()) {
    const std::string shard = value.is_string() ? value.get<std::string>() : "";
    if (shard.empty() || shard.find('/') != std::string::npos || !shard.ends_with(".safetensors")) {
      return fail(ErrorCode::kCorrupt,
                  "{}: '{}' is mapped to {}, which is no .safetensors file of this folder",
                  index_path.string(), tensor, dump_json(value));
    }
    auto& file = shards[shard];
    if (file == nullptr) {
      WEFT_ASSIGN(file, SafetensorsFile::open(path / shard));
    }
    if (file->find(tensor) == nullptr) {
      return fail(ErrorCode::kCorrupt, "{}: '{}' should be in {} but is not", index_path.string(),
                  tensor, shard);
    }
  }
  std::set<std::string_view> seen;
  for (const auto& [shard, file] : shards) {
    for (const NamedTensor& tensor : file->tensors()) {
      if (!seen.insert(tensor.name).second) {
        return fail(ErrorCode::kCorrupt, "{}: '{}' is in more than one shard", index_path.string(),
                    tensor.name);
      }
    }
    files.push_back(file);
  }
  return files;
}

Status write_safetensors(const fs::path& path, std::vector<TensorSource> tensors,
                         const std::map<std::string, std::string>& metadata,
                         const WriteProgress& progress) {
  std::ranges::stable_sort(tensors, [](const TensorSource& a, const TensorSource& b) {
    const std::int64_t wide_a = block_bytes(a.dtype), wide_b = block_bytes(b.dtype);
    return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
  });
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t at = 0;
  for (const TensorSource& tensor : tensors) {
    if (type_name(tensor.dtype).empty()) {
      return fail(ErrorCode::kUnsupported,
                  "{}: a safetensors file cannot hold '{}' as {}; use F32, F16 or BF16",
                  path.string(), tensor.name, to_string(tensor.dtype));
    }
    if (header.contains(tensor.name)) {
      return fail(ErrorCode::kInvalidArgument, "{}: two tensors are named '{}'", path.string(),
                  tensor.name);
    }
    header[tensor.name] = {{"dtype", type_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {at, at + tensor.bytes()}}};
    at += tensor.bytes();
  }
  std::string text = dump_json(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  const auto size = static_cast<std::uint64_t>(text.size());
  WEFT_ASSIGN(OutputFile out, OutputFile::create(path));
  WEFT_TRY(out.write(std::as_bytes(std::span(&size, 1))));
  WEFT_TRY(out.write(text));
  WEFT_TRY(out.write_tensors(tensors, 1, progress));
  return out.commit();
}

Status write_safetensors_model(const fs::path& folder, std::vector<TensorSource> tensors,
                               std::int64_t shard_bytes, const WriteProgress& progress) {
  const std::map<std::string, std::string> metadata = {{"format", "pt"}};
  std::int64_t total = 0;
  std::vector<std::vector<TensorSource>> shards(1);
  std::int64_t filled = 0;
  for (TensorSource& tensor : tensors) {
    const std::int64_t size = tensor.bytes();
    if (filled > 0 && filled + size > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    filled += size;
    total += size;
    shards.back().push_back(std::move(tensor));
  }
  if (shards.size() == 1)
    return write_safetensors(folder / "model.safetensors", std::move(shards[0]), metadata,
                             progress);
  Json weight_map = Json::object();
  std::int64_t before = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    std::int64_t size = 0;
    for (const TensorSource& tensor : shards[i]) {
      weight_map[tensor.name] = name;
      size += tensor.bytes();
    }
    const WriteProgress part = [&](std::int64_t done, std::int64_t) {
      if (progress) progress(before + done, total);
    };
    WEFT_TRY(write_safetensors(folder / name, std::move(shards[i]), metadata, part));
    before += size;
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  return write_file_atomic(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace weft::model
