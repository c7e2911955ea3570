#include "bench/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "weft/base/file.h"

extern char** environ;

namespace weft::bench {
namespace {

// Loading a model and importing PyTorch takes 5 to 20 s on a busy machine.
constexpr auto kStart = std::chrono::minutes(5);

std::unexpected<Error> broken(const std::string& name, std::string_view what) {
  return fail(ErrorCode::kUnavailable, "the peer {} {}", name, what);
}

}  // namespace

Result<std::filesystem::path> peer_python() {
  WEFT_ASSIGN(const std::filesystem::path cache, cache_dir());
  const auto python = cache / "deps" / "peers" / "bin" / "python";
  if (!std::filesystem::exists(cache / "deps" / "peers" / ".ok") ||
      !std::filesystem::exists(python)) {
    return fail(ErrorCode::kUnavailable, "the peers are not installed; run `make peers`");
  }
  return python;
}

Result<Peer> Peer::start(const std::string& script, const std::vector<std::string>& arguments) {
  WEFT_ASSIGN(const std::filesystem::path python, peer_python());
  const std::filesystem::path path = std::filesystem::path(WEFT_PEER_SCRIPTS) / script;
  if (!std::filesystem::exists(path)) {
    return fail(ErrorCode::kUnavailable, "no {}: benchmarks with peers run from the source tree",
                path.string());
  }
  int to[2];
  int from[2];
  if (::pipe2(to, O_CLOEXEC) != 0) return fail(ErrorCode::kIo, "pipe: {}", std::strerror(errno));
  if (::pipe2(from, O_CLOEXEC) != 0) {
    ::close(to[0]);
    ::close(to[1]);
    return fail(ErrorCode::kIo, "pipe: {}", std::strerror(errno));
  }
  Peer peer;
  peer.name_ = script;
  peer.to_ = to[1];
  peer.from_ = from[0];

  std::vector<std::string> words = {python.string(), path.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // The command may carry the tests' PYTHONPATH, which would hide the peers'.
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::strncmp(*variable, "PYTHONPATH=", 11) != 0) environment.push_back(*variable);
  }
  environment.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from[1], 1);
  const int status =
      ::posix_spawn(&peer.pid_, argv[0], &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(to[0]);
  ::close(from[1]);
  if (status != 0) {
    peer.pid_ = -1;
    return broken(script, fmt::format("did not start: {}", std::strerror(status)));
  }
  WEFT_ASSIGN(const std::string line, peer.read_line(Deadline::after(kStart)));
  WEFT_ASSIGN(const Json hello, parse_json(line, script));
  WEFT_ASSIGN(peer.version_, json_field<std::string>(hello, "version"));
  return peer;
}

Peer::Peer(Peer&& other) noexcept { *this = std::move(other); }

Peer& Peer::operator=(Peer&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(to_, other.to_);
  std::swap(from_, other.from_);
  std::swap(name_, other.name_);
  std::swap(buffer_, other.buffer_);
  std::swap(version_, other.version_);
  return *this;
}

Peer::~Peer() {
  if (to_ >= 0) ::close(to_);  // end of input: it leaves by itself
  if (from_ >= 0) ::close(from_);
  if (pid_ < 0) return;
  const Deadline patience = Deadline::after(std::chrono::seconds(3));
  while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (patience.expired()) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

Result<std::string> Peer::read_line(Deadline deadline) {
  while (true) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    pollfd ready{.fd = from_, .events = POLLIN, .revents = 0};
    const int count = ::poll(&ready, 1, deadline.left_ms());
    if (count < 0 && errno != EINTR) return broken(name_, std::strerror(errno));
    WEFT_TRY(deadline.check(fmt::format("the peer {}", name_)));
    if (count <= 0) continue;
    char chunk[4096];
    const ssize_t got = ::read(from_, chunk, sizeof chunk);
    if (got == 0) return broken(name_, "ended; its messages are above");
    if (got < 0) return broken(name_, std::strerror(errno));
    buffer_.append(chunk, static_cast<std::size_t>(got));
  }
}

Result<Json> Peer::request(const Json& message, Deadline deadline) {
  const std::string line = dump_json(message) + "\n";
  // Under PIPE_BUF and the peer reads all: written at once, or it is gone.
  if (::write(to_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    return broken(name_, "takes no request");
  }
  WEFT_ASSIGN(const std::string reply, read_line(deadline));
  WEFT_ASSIGN(Json json, parse_json(reply, name_));
  if (const Json* error = json_find(json, "error")) {
    return broken(name_, fmt::format("failed: {}", dump_json(*error)));
  }
  return json;
}

}  // namespace weft::bench
