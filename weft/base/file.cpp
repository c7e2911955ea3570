#include "weft/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace weft {
namespace {

namespace fs = std::filesystem;

// Closes on scope exit.
struct Descriptor {
  int fd = -1;
  explicit Descriptor(int value) : fd(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

std::unexpected<Error> io_error(std::string_view verb, const fs::path& path, int error) {
  const ErrorCode code = error == ENOENT   ? ErrorCode::kNotFound
                         : error == ENOSPC ? ErrorCode::kResourceExhausted
                                           : ErrorCode::kIo;
  return fail(code, "cannot {} {}: {}", verb, path.string(), std::strerror(error));
}

// Opens a regular file for reading and gives its size.
Result<std::size_t> open_regular(const fs::path& path, Descriptor& file) {
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.fd < 0) return io_error("open", path, errno);
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) return io_error("stat", path, errno);
  if (S_ISDIR(info.st_mode)) {
    return fail(ErrorCode::kInvalidArgument, "{} is a directory; name a file", path.string());
  }
  return static_cast<std::size_t>(info.st_size);
}

Status write_all(int fd, std::string_view content, const fs::path& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return io_error("write", path, errno);
    }
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace

Result<MappedFile> MappedFile::open(const fs::path& path) {
  Descriptor file(-1);
  WEFT_ASSIGN(const std::size_t size, open_regular(path, file));
  if (size == 0) return MappedFile(nullptr, 0);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) return io_error("map", path, errno);
  return MappedFile(static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<std::string> read_file(const fs::path& path, std::size_t max_bytes) {
  Descriptor file(-1);
  WEFT_ASSIGN(const std::size_t expected, open_regular(path, file));
  const auto too_large = [&] {
    return fail(ErrorCode::kResourceExhausted, "{} is larger than the limit of {} bytes",
                path.string(), max_bytes);
  };
  if (expected > max_bytes) return too_large();
  // The size is only a hint: pipes and /proc files say 0.
  std::string content(expected + 1, '\0');
  std::size_t size = 0;
  while (true) {
    if (size == content.size()) content.resize(content.size() * 2);
    const ssize_t got = ::read(file.fd, content.data() + size, content.size() - size);
    if (got < 0) {
      if (errno == EINTR) continue;
      return io_error("read", path, errno);
    }
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
    if (size > max_bytes) return too_large();
  }
  content.resize(size);
  return content;
}

Status write_file_atomic(const fs::path& path, std::string_view content) {
  static std::atomic<std::uint64_t> counter{0};  // only makes names distinct
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const fs::path part = folder / fmt::format(".{}.{}.{}.part", path.filename().string(), ::getpid(),
                                             counter.fetch_add(1));
  const auto write_part = [&]() -> Status {
    const Descriptor file(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.fd < 0) return io_error("create", part, errno);
    WEFT_TRY(write_all(file.fd, content, part));
    if (::fsync(file.fd) != 0) return io_error("sync", part, errno);
    return {};
  };
  if (Status written = write_part(); !written) {
    ::unlink(part.c_str());
    return written;
  }
  if (::rename(part.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(part.c_str());
    return io_error("replace", path, error);
  }
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.fd >= 0) ::fsync(directory.fd);  // makes the rename durable where it can be
  return {};
}

Result<fs::path> cache_dir() {
  const auto variable = [](const char* name) -> fs::path {
    const char* value = std::getenv(name);
    return value == nullptr ? fs::path{} : fs::path(value);
  };
  fs::path dir = variable("WEFT_CACHE");
  if (dir.empty() && !variable("XDG_CACHE_HOME").empty()) dir = variable("XDG_CACHE_HOME") / "weft";
  if (dir.empty() && !variable("HOME").empty()) dir = variable("HOME") / ".cache" / "weft";
  if (dir.empty()) {
    return fail(ErrorCode::kNotFound, "no folder for the cache: set WEFT_CACHE or HOME");
  }
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) {
    return fail(ErrorCode::kIo, "cannot create the cache folder {}: {}; set WEFT_CACHE",
                dir.string(), error.message());
  }
  return dir;
}

}  // namespace weft
