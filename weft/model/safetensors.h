// safetensors: tensors after a JSON header. Format: docs/formats/safetensors.md.
#pragma once

#include <filesystem>
#include <map>
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
#include "weft/model/tensor_source.h"
#include "weft/model/weights.h"

namespace weft::model {

// One parsed file. Immutable, safe to read from many threads; views point into its
// bytes (at any alignment) and are valid while the object lives.
class SafetensorsFile {
 public:
  // As strict as the reference library: header length and JSON, known types, shapes
  // that match their bytes, no holes, no overlaps, no bytes left over. kCorrupt names
  // file and tensor; types outside dtype.h are kUnsupported.
  static Result<std::shared_ptr<const SafetensorsFile>> open(const std::filesystem::path& path);
  // The same over bytes that outlive the object.
  static Result<std::shared_ptr<const SafetensorsFile>> parse(std::span<const std::byte> bytes,
                                                              std::string name);

  const std::string& name() const { return name_; }
  const std::vector<NamedTensor>& tensors() const {
    return tensors_;
  }  // in the order of their bytes
  const TensorView* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  SafetensorsFile() = default;
  Status parse_bytes(std::span<const std::byte> bytes);

  std::optional<MappedFile> map_;
  std::string name_;
  std::vector<NamedTensor> tensors_;
  std::unordered_map<std::string, std::size_t> index_;
  std::map<std::string, std::string> metadata_;
};

// The files of a model: one .safetensors, or a folder with model.safetensors or
// model.safetensors.index.json and its shards. Checks the index against the shards.
Result<std::vector<std::shared_ptr<const SafetensorsFile>>> open_safetensors_model(
    const std::filesystem::path& path);

// Writes one file at once or not at all; tensors are sorted as the reference library
// does (wider types first, then by name), so equal content gives equal bytes.
Status write_safetensors(const std::filesystem::path& path, std::vector<TensorSource> tensors,
                         const std::map<std::string, std::string>& metadata,
                         const WriteProgress& progress = {});

// Writes model.safetensors into `folder`, or shards of at most `shard_bytes` with their
// index where the model is larger. Files appear under their final names one by one.
Status write_safetensors_model(const std::filesystem::path& folder,
                               std::vector<TensorSource> tensors, std::int64_t shard_bytes,
                               const WriteProgress& progress = {});

}  // namespace weft::model
