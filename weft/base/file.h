// Files: read-only maps, whole reads, and writes that appear at once or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "weft/base/result.h"

namespace weft {

// A read-only memory map of a whole file. Moves; the bytes stay valid while it lives.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// The whole file as text; refuses more than `max_bytes`.
Result<std::string> read_file(const std::filesystem::path& path,
                              std::size_t max_bytes = std::size_t{1} << 30);

// Writes beside the target, fsyncs, renames: readers see the old or the new file.
Status write_file_atomic(const std::filesystem::path& path, std::string_view content);

// $WEFT_CACHE, else $XDG_CACHE_HOME/weft, else ~/.cache/weft; created if absent.
Result<std::filesystem::path> cache_dir();

}  // namespace weft
