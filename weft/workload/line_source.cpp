#include "weft/workload/line_source.h"

#include <cerrno>
#include <cstring>

namespace weft::workload {
namespace {
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
}

Result<LineSource> LineSource::open(const std::filesystem::path& path) {
  LineSource source;
  source.name_ = path.string();
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return fail(ErrorCode::kInvalidArgument, "{} is a folder; a trace is a file", source.name_);
  }
  source.file_.reset(std::fopen(path.c_str(), "rb"));
  if (source.file_ == nullptr) {
    return fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot open {}: {}",
                source.name_, std::strerror(errno));
  }
  const auto bytes = std::filesystem::file_size(path, error);
  source.file_bytes_ = error ? 0 : static_cast<std::int64_t>(bytes);
  return source;
}

Status LineSource::fill() {
  if (begin_ > 0) {
    buffer_.erase(0, begin_);
    scanned_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() > kMaxLineBytes) {
    return fail(ErrorCode::kCorrupt, "{}: line {} is longer than {} bytes; this is no trace", name_,
                line_number_ + 1, kMaxLineBytes);
  }
  const std::size_t old = buffer_.size();
  buffer_.resize(old + kChunkBytes);
  const std::size_t got = std::fread(buffer_.data() + old, 1, kChunkBytes, file_.get());
  buffer_.resize(old + got);
  if (got < kChunkBytes) {
    if (std::ferror(file_.get()) != 0) {
      return fail(ErrorCode::kIo, "cannot read {}: {}", name_, std::strerror(errno));
    }
    at_end_ = true;
  }
  return {};
}

Result<bool> LineSource::next(std::string_view& line) {
  for (;;) {
    const void* end = scanned_ < buffer_.size()
                          ? std::memchr(buffer_.data() + scanned_, '\n', buffer_.size() - scanned_)
                          : nullptr;
    std::size_t stop = 0, after = 0;
    if (end != nullptr) {
      stop = static_cast<std::size_t>(static_cast<const char*>(end) - buffer_.data());
      after = stop + 1;
    } else if (at_end_) {
      if (begin_ == buffer_.size()) return false;
      stop = after = buffer_.size();
    } else {
      scanned_ = buffer_.size();
      WEFT_TRY(fill());
      continue;
    }
    line = std::string_view(buffer_).substr(begin_, stop - begin_);
    bytes_read_ += static_cast<std::int64_t>(after - begin_);
    begin_ = scanned_ = after;
    if (++line_number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return true;
  }
}

}  // namespace weft::workload
