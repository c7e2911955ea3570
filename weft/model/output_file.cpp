#include "weft/model/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace weft::model {
namespace {

namespace fs = std::filesystem;

std::unexpected<Error> io_error(std::string_view verb, const fs::path& path) {
  const ErrorCode code = errno == ENOSPC ? ErrorCode::kResourceExhausted : ErrorCode::kIo;
  return fail(code, "cannot {} {}: {}", verb, path.string(), std::strerror(errno));
}

}  // namespace

Result<OutputFile> OutputFile::create(const fs::path& path) {
  const fs::path temporary = fmt::format("{}.{}.part", path.string(), ::getpid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return io_error("write", temporary);
  return OutputFile(path, temporary, fd);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)),
      position_(other.position_) {}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return io_error("write", temporary_);
    }
    position_ += n;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Status OutputFile::write(std::string_view text) {
  return write(std::as_bytes(std::span(text.data(), text.size())));
}

Status OutputFile::pad(std::int64_t alignment) {
  const auto zeros = static_cast<std::size_t>((alignment - position_ % alignment) % alignment);
  return write(std::vector<std::byte>(zeros));
}

Status OutputFile::write_tensors(std::span<TensorSource> tensors, std::int64_t alignment,
                                 const WriteProgress& progress) {
  std::int64_t total = 0;
  std::int64_t done = 0;
  for (const TensorSource& tensor : tensors) total += tensor.bytes();
  std::vector<std::byte> buffer;
  for (TensorSource& tensor : tensors) {
    WEFT_TRY(pad(alignment));
    buffer.resize(static_cast<std::size_t>(tensor.bytes()));
    if (auto filled = tensor.fill(buffer); !filled) {
      return std::unexpected(filled.error().in(fmt::format("tensor '{}'", tensor.name)));
    }
    WEFT_TRY(write(buffer));
    done += tensor.bytes();
    if (progress) progress(done, total);
  }
  return {};
}

Status OutputFile::commit() {
  if (::fsync(fd_) != 0) return io_error("write", temporary_);
  if (::close(std::exchange(fd_, -1)) != 0) {
    ::unlink(temporary_.c_str());
    return io_error("close", temporary_);
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const auto error = io_error("rename", temporary_);
    ::unlink(temporary_.c_str());
    return error;
  }
  return {};
}

TensorSource source_of(std::string name, const TensorView& view) {
  return {std::move(name), view.dtype, view.shape, [view](std::span<std::byte> out) -> Status {
            if (!out.empty()) std::memcpy(out.data(), view.data, out.size());
            return {};
          }};
}

}  // namespace weft::model
