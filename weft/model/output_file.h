// OutputFile: a large file written piece by piece that appears at once or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "weft/base/result.h"
#include "weft/model/tensor_source.h"

namespace weft::model {

// Writes to a temporary name in the same folder; commit() syncs and renames. Without
// commit the destructor removes it. Not thread-safe.
class OutputFile {
 public:
  static Result<OutputFile> create(const std::filesystem::path& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  OutputFile(const OutputFile&) = delete;
  ~OutputFile();

  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  // Zeros up to the next multiple of `alignment`.
  Status pad(std::int64_t alignment);
  // Fills each source into a buffer and writes it, padded before to `alignment`.
  Status write_tensors(std::span<TensorSource> tensors, std::int64_t alignment,
                       const WriteProgress& progress);
  std::int64_t position() const { return position_; }
  Status commit();

 private:
  OutputFile(std::filesystem::path path, std::filesystem::path temporary, int fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
  std::int64_t position_ = 0;
};

}  // namespace weft::model
