#include "weft/rl/verifier.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "weft/base/json.h"

namespace weft::rl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxLine = 1 << 16;
// Lines sent ahead of their answers; few, so that a death repeats little work.
constexpr std::size_t kWindow = 64;

void limit(int resource, std::int64_t value) {
  if (value <= 0) return;
  const auto bound = static_cast<rlim_t>(value);
  const rlimit both{bound, bound};
  setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

// One running command with pipes to its stdin and stdout.
class Process {
 public:
  static Result<std::unique_ptr<Process>> start(const VerifierOptions& options) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0)
      return fail(ErrorCode::kIo, "verifier: pipe: {}", std::strerror(errno));
    if (pipe2(out, O_CLOEXEC) != 0) {
      close(in[0]);
      close(in[1]);
      return fail(ErrorCode::kIo, "verifier: pipe: {}", std::strerror(errno));
    }
    const char* command = options.command.c_str();
    const pid_t pid = fork();
    if (pid == 0) {
      // Only calls that are safe between fork and exec.
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      limit(RLIMIT_AS, options.memory_mib * 1024 * 1024);
      limit(RLIMIT_CPU, options.cpu_seconds);
      signal(SIGPIPE, SIG_DFL);
      signal(SIGINT, SIG_IGN);
      execl("/bin/sh", "sh", "-c", command, static_cast<char*>(nullptr));
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    if (pid < 0) {
      close(in[1]);
      close(out[0]);
      return fail(ErrorCode::kIo, "verifier: fork: {}", std::strerror(errno));
    }
    setpgid(pid, pid);  // the child does it too: whoever comes first
    fcntl(in[1], F_SETFL, O_NONBLOCK);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    auto process = std::unique_ptr<Process>(new Process);
    process->pid_ = pid;
    process->in_ = in[1];
    process->out_ = out[0];
    return process;
  }

  ~Process() {
    close(in_);
    close(out_);
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  void send(std::string_view text) { pending_ += text; }

  enum class Wait { kLine, kTimeout, kDead };
  // Writes what is pending and waits for one whole line.
  Wait read_line(std::string& line, Clock::time_point deadline) {
    while (true) {
      const std::size_t end = received_.find('\n');
      if (end != std::string::npos) {
        line = received_.substr(0, end);
        received_.erase(0, end + 1);
        return Wait::kLine;
      }
      if (received_.size() > kMaxLine) return Wait::kDead;
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) return Wait::kTimeout;
      pollfd ends[2] = {{out_, POLLIN, 0},
                        {in_, static_cast<short>(pending_.empty() ? 0 : POLLOUT), 0}};
      const int ready = poll(ends, pending_.empty() ? 1 : 2, static_cast<int>(left.count()) + 1);
      if (ready < 0 && errno != EINTR) return Wait::kDead;
      if (ready <= 0) continue;
      if (!pending_.empty() && ends[1].revents != 0) {
        const ssize_t n = write(in_, pending_.data(), pending_.size());
        if (n > 0) pending_.erase(0, static_cast<std::size_t>(n));
        if (n < 0 && errno != EAGAIN && errno != EINTR) pending_.clear();  // reading tells the rest
      }
      if (ends[0].revents != 0) {
        char buffer[4096];
        const ssize_t n = read(out_, buffer, sizeof buffer);
        if (n == 0) return Wait::kDead;
        if (n < 0 && errno != EAGAIN && errno != EINTR) return Wait::kDead;
        if (n > 0) received_.append(buffer, static_cast<std::size_t>(n));
      }
    }
  }

 private:
  Process() = default;
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string pending_, received_;
};

std::string request_line(const Reply& reply) {
  Json line = Json::object();
  line["prompt"] = reply.prompt->text;
  line["completion"] = reply.text;
  line["reference"] = reply.prompt->reference;
  line["ended"] = reply.ended;
  return dump_json(line) + "\n";
}

Score no_reward(std::string reason) {
  Score score;
  score.error = std::move(reason);
  return score;
}

}  // namespace

Score parse_verifier_line(std::string_view line) {
  const std::string text(line);
  char* end = nullptr;
  const double plain = std::strtod(text.c_str(), &end);
  Score score;
  if (end != text.c_str() &&
      std::string_view(end).find_first_not_of(" \t\r") == std::string_view::npos) {
    if (!std::isfinite(plain)) return no_reward("the verifier answered '" + text + "'");
    score.reward = plain;
    score.exact = plain >= 1.0;
    return score;
  }
  auto json = parse_json(text, "verifier");
  if (!json || !json->is_object())
    return no_reward("the verifier's line is neither a number nor a JSON object: '" +
                     text.substr(0, 80) + "'");
  if (json->contains("error"))
    return no_reward("the verifier reports: " + dump_json((*json)["error"]));
  const auto reward = json->find("reward");
  if (reward == json->end() || !reward->is_number())
    return no_reward("the verifier's object has no number \"reward\"");
  score.reward = reward->get<double>();
  score.exact = score.reward >= 1.0;
  if (const auto exact = json->find("exact"); exact != json->end() && exact->is_boolean())
    score.exact = exact->get<bool>();
  return score;
}

struct Verifier::Impl {
  VerifierOptions options;
  std::unique_ptr<Process> process;
  std::int64_t restarts = 0, errors = 0;
};

Verifier::Verifier(VerifierOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
}
Verifier::~Verifier() = default;
std::int64_t Verifier::restarts() const { return impl_->restarts; }
std::int64_t Verifier::errors() const { return impl_->errors; }

std::vector<Score> Verifier::score(std::span<const Reply> replies) {
  std::vector<Score> scores(replies.size());
  std::size_t next = 0, sent = 0;  // lines answered, lines sent
  int attempts = 0;                // of line `next`
  std::string reason;
  while (next < replies.size()) {
    if (attempts >= impl_->options.attempts) {
      scores[next++] = no_reward(reason);
      ++impl_->errors;
      attempts = 0;
      sent = std::max(sent, next);
      continue;
    }
    if (!impl_->process) {
      auto started = Process::start(impl_->options);
      if (!started) {
        reason = started.error().message;
        ++attempts;
        continue;
      }
      impl_->process = std::move(*started);
      sent = next;
    }
    for (; sent < replies.size() && sent < next + kWindow; ++sent)
      impl_->process->send(request_line(replies[sent]));
    std::string line;
    const auto deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(
                           std::chrono::duration<double>(impl_->options.reply_seconds));
    const Process::Wait got = impl_->process->read_line(line, deadline);
    if (got == Process::Wait::kLine) {
      scores[next] = parse_verifier_line(line);
      impl_->errors += !scores[next].error.empty();
      ++next;
      attempts = 0;
      continue;
    }
    reason =
        got == Process::Wait::kTimeout
            ? fmt::format("the verifier gave no line within {} s", impl_->options.reply_seconds)
            : std::string("the verifier died, closed its output or wrote an endless line");
    impl_->process.reset();
    ++impl_->restarts;
    ++attempts;
  }
  return scores;
}

}  // namespace weft::rl
