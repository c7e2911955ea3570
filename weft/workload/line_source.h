// Lines of a text file of any size, read through one buffer, with their numbers.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "weft/base/result.h"

namespace weft::workload {

// Reads a file from its beginning; memory is bounded by the longest line. Accepts
// "\n" and "\r\n", a byte-order mark, and a last line without an end. Moves; not
// for concurrent use.
class LineSource {
 public:
  static constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;

  static Result<LineSource> open(const std::filesystem::path& path);

  // The next line without its end; false at the end of the file. The view is valid
  // until the next call. kCorrupt for a line above kMaxLineBytes, kIo otherwise.
  Result<bool> next(std::string_view& line);

  std::int64_t line_number() const { return line_number_; }  // of the last line, from 1
  std::int64_t bytes_read() const { return bytes_read_; }    // of the lines given so far
  std::int64_t file_bytes() const { return file_bytes_; }
  const std::string& name() const { return name_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  LineSource() = default;
  Status fill();

  std::unique_ptr<std::FILE, Close> file_;
  std::string name_;
  std::string buffer_;
  std::size_t begin_ = 0;    // of what is not given yet
  std::size_t scanned_ = 0;  // no line end before this position
  bool at_end_ = false;
  std::int64_t line_number_ = 0, bytes_read_ = 0, file_bytes_ = 0;
};

}  // namespace weft::workload
