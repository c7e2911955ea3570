#include "weft/comm/rendezvous.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "weft/base/file.h"

namespace weft::comm {

Result<std::string> Rendezvous::wait(std::string_view key, Deadline deadline) {
  using namespace std::chrono_literals;
  auto pause = std::chrono::microseconds(50us);
  for (;;) {
    auto value = get(key);
    if (value || value.error().code != ErrorCode::kNotFound) return value;
    WEFT_TRY(deadline.check(fmt::format("waiting for \"{}\" at the rendezvous", key)));
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(2 * pause, 5ms);
  }
}

Result<FileRendezvous> FileRendezvous::create(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return fail(ErrorCode::kIo, "cannot make the rendezvous directory {}: {}", directory.string(),
                error.message());
  }
  return FileRendezvous(directory);
}

Result<std::filesystem::path> FileRendezvous::path_of(std::string_view key) const {
  std::string name(key);
  bool good = !name.empty() && name.find("..") == std::string::npos && name.size() < 200;
  for (char& c : name) {
    good = good && (std::isalnum(static_cast<unsigned char>(c)) || strchr("-_./", c) != nullptr);
    if (c == '/') c = '+';
  }
  if (!good) return fail(ErrorCode::kInvalidArgument, "\"{}\" cannot be a rendezvous key", key);
  return directory_ / name;
}

Result<std::string> FileRendezvous::put_if_absent(std::string_view key, std::string_view value) {
  static std::atomic<unsigned> serial{0};
  WEFT_ASSIGN(const auto path, path_of(key));
  const std::filesystem::path fresh =
      directory_ / fmt::format(".new-{}-{}", ::getpid(), serial.fetch_add(1));
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool written =
      fd >= 0 && ::write(fd, value.data(), value.size()) == static_cast<ssize_t>(value.size());
  int error = written ? 0 : errno;
  if (fd >= 0) ::close(fd);
  // A link appears whole or not at all, and only for the first.
  if (error == 0 && ::link(fresh.c_str(), path.c_str()) != 0) error = errno;
  ::unlink(fresh.c_str());
  if (error == 0) return std::string(value);
  if (error == EEXIST) return get(key);
  return fail(ErrorCode::kIo, "cannot write \"{}\" in {}: {}", key, directory_.string(),
              std::strerror(error));
}

Result<std::string> FileRendezvous::get(std::string_view key) {
  WEFT_ASSIGN(const auto path, path_of(key));
  return read_file(path, 1 << 20);
}

Result<std::string> MemoryRendezvous::put_if_absent(std::string_view key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  return values_.try_emplace(std::string(key), value).first->second;
}

Result<std::string> MemoryRendezvous::get(std::string_view key) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return fail(ErrorCode::kNotFound, "no key \"{}\"", key);
  return found->second;
}

}  // namespace weft::comm
