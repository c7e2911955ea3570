#include "weft/node/launch.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>

#include "weft/base/deadline.h"
#include "weft/base/id.h"
#include "weft/base/ring.h"
#include "weft/comm/run_environment.h"
#include "weft/node/cpu_set.h"
#include "weft/node/line_splitter.h"
#include "weft/node/process_tree.h"
#include "weft/node/rank_process.h"

namespace weft::node {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
constexpr std::size_t kLastLines = 5;
constexpr auto kKillTime = std::chrono::seconds(5);  // for SIGKILL to take effect

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A port of loopback that nobody has now; rank 0 binds it soon after.
Result<int> free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool good = fd >= 0 && ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!good) return fail(ErrorCode::kIo, "no free port on loopback: {}", std::strerror(error));
  return ntohs(address.sin_port);
}

// Signals as a file, blocked while this lives.
class SignalFile {
 public:
  SignalFile() {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&set_, signal);
    ::sigprocmask(SIG_BLOCK, &set_, &old_);
    fd_ = ::signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~SignalFile() {
    ::close(fd_);
    ::sigprocmask(SIG_SETMASK, &old_, nullptr);
  }
  SignalFile(const SignalFile&) = delete;
  SignalFile& operator=(const SignalFile&) = delete;
  int fd() const { return fd_; }
  const sigset_t& old() const { return old_; }
  // Counts the signals to stop that came and gives the last one, or 0.
  int take(int& count) {
    int stop = 0;
    signalfd_siginfo info;
    while (::read(fd_, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo == SIGCHLD) continue;
      stop = static_cast<int>(info.ssi_signo);
      ++count;
    }
    return stop;
  }

 private:
  sigset_t set_, old_;
  int fd_ = -1;
};

struct Stream {
  int fd = -1;
  LineSplitter lines = {};
};

struct Rank {
  pid_t pid = 0;
  bool alive = false;
  Stream streams[2];  // standard output, standard error
  std::ofstream log;
  std::deque<std::string> last;
};

class Launcher {
 public:
  Launcher(const LaunchOptions& options, const LaunchListener& listener, Deadline limit)
      : options_(options), listener_(listener), limit_(limit) {}
  ~Launcher();

  Status prepare();
  Status start(std::uint32_t attempt);
  // Until no rank and nothing below is left. The outcome of this attempt is in `verdict`.
  Status supervise(std::uint32_t attempt, LaunchVerdict& verdict);
  const std::string& job() const { return job_; }
  void notice(const std::string& text) const {
    if (listener_.notice) listener_.notice(text);
  }

 private:
  void pump(std::uint32_t r, int stream);
  void drain();
  std::vector<RankEnd> reap(std::uint32_t attempt);
  void stop(LaunchVerdict& verdict, LaunchOutcome why, int signal);
  std::size_t alive() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(ranks_, [](const Rank& rank) { return rank.alive; }));
  }

  const LaunchOptions& options_;
  const LaunchListener& listener_;
  Deadline limit_;
  SignalFile signals_;
  std::string job_;
  fs::path directory_;  // of the job in shared memory
  std::vector<std::vector<int>> cpus_;
  std::vector<Rank> ranks_;
  Clock::time_point began_ = Clock::now();
  bool stopping_ = false;
  Deadline kill_at_ = Deadline::after(std::chrono::hours(1));
};

Launcher::~Launcher() {
  for (Rank& rank : ranks_) {
    for (Stream& stream : rank.streams) {
      if (stream.fd >= 0) ::close(stream.fd);
    }
  }
  std::error_code error;
  if (!directory_.empty()) {
    fs::remove_all(options_.trace ? directory_ / "rendezvous" : directory_, error);
  }
}

Status Launcher::prepare() {
  if (options_.command.empty()) {
    return fail(ErrorCode::kInvalidArgument, "no program; give it after --");
  }
  if (options_.ranks == 0 || options_.ranks > kMostRanks) {
    return fail(ErrorCode::kInvalidArgument, "{} ranks: give 1 to {}", options_.ranks, kMostRanks);
  }
  job_ = options_.job.empty() ? format_id("run", fresh_id_bits()) : options_.job;
  WEFT_ASSIGN(const fs::path ring, ring_path(job_, 0));
  if (fs::exists(ring.parent_path() / "rendezvous")) {
    return fail(ErrorCode::kInvalidArgument,
                "a job \"{}\" runs already, or was killed: take another name or remove {}", job_,
                ring.parent_path().string());
  }
  directory_ = ring.parent_path();
  std::error_code error;
  if (!options_.log_directory.empty()) {
    fs::create_directories(options_.log_directory, error);
    if (error) {
      return fail(ErrorCode::kIo, "cannot make {}: {}", options_.log_directory.string(),
                  error.message());
    }
  }
  WEFT_ASSIGN(const std::vector<Cpu> cpus, allowed_cpus());
  cpus_ = options_.pin ? split_cpus(cpus, options_.ranks)
                       : std::vector<std::vector<int>>(options_.ranks);
  return {};
}

Status Launcher::start(std::uint32_t attempt) {
  ranks_.clear();
  ranks_.resize(options_.ranks);
  stopping_ = false;
  began_ = Clock::now();
  comm::RunEnvironment run;
  run.job = job_;
  run.ranks = options_.ranks;
  run.attempt = attempt;
  run.rendezvous = directory_ / "rendezvous" / std::to_string(attempt);
  run.shared_memory = options_.shared_memory;
  run.trace = options_.trace;
  std::error_code error;
  fs::create_directories(run.rendezvous, error);
  if (error) {
    return fail(ErrorCode::kIo, "cannot make {}: {}", run.rendezvous.string(), error.message());
  }
  WEFT_ASSIGN(const int port, free_port());
  for (std::uint32_t r = 0; r < options_.ranks; ++r) {
    run.rank = r;
    RankStart begin;
    begin.command = options_.command;
    begin.cpus = cpus_[r];
    begin.signals = signals_.old();
    begin.variables = comm::to_variables(run);
    const std::string cpus = format_cpu_list(cpus_[r]);
    for (const auto& [name, value] : std::initializer_list<std::pair<const char*, std::string>>{
             {"LOCAL_RANK", std::to_string(r)},
             {"LOCAL_WORLD_SIZE", std::to_string(options_.ranks)},
             {"GROUP_RANK", "0"},
             {"MASTER_ADDR", "127.0.0.1"},
             {"MASTER_PORT", std::to_string(port)},
             {"WEFT_CPUS", cpus}}) {
      begin.variables.emplace_back(name, value);
    }
    // Else every rank would start as many threads as the machine has cores.
    if (std::getenv("OMP_NUM_THREADS") == nullptr) {
      begin.variables.emplace_back("OMP_NUM_THREADS",
                                   std::to_string(std::max<std::size_t>(cpus_[r].size(), 1)));
    }
    WEFT_ASSIGN(const RankProcess process, start_process(begin));
    Rank& rank = ranks_[r];
    rank.pid = process.pid;
    rank.alive = true;
    rank.streams[0].fd = process.output;
    rank.streams[1].fd = process.error;
    if (!options_.log_directory.empty()) {
      const std::string name = attempt == 0 ? fmt::format("rank-{}.log", r)
                                            : fmt::format("rank-{}.restart-{}.log", r, attempt);
      rank.log.open(options_.log_directory / name);
      if (!rank.log) {
        return fail(ErrorCode::kIo, "cannot write {}", (options_.log_directory / name).string());
      }
    }
    if (listener_.started) listener_.started(r, attempt, rank.pid, cpus);
  }
  return {};
}

// Takes what there is, at most a megabyte, so that no rank keeps the others waiting.
void Launcher::pump(std::uint32_t r, int stream) {
  Rank& rank = ranks_[r];
  Stream& from = rank.streams[stream];
  const auto sink = [&](std::string_view line) {
    if (listener_.line) listener_.line(r, stream == 1, line);
    if (rank.log.is_open()) rank.log << line << '\n' << std::flush;
    if (stream == 0) return;
    rank.last.emplace_back(line.substr(0, 400));
    if (rank.last.size() > kLastLines) rank.last.pop_front();
  };
  char bytes[64 << 10];
  for (int i = 0; i < 16 && from.fd >= 0; ++i) {
    const ssize_t count = ::read(from.fd, bytes, sizeof(bytes));
    if (count > 0) {
      from.lines.add({bytes, static_cast<std::size_t>(count)}, sink);
      continue;
    }
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    from.lines.finish(sink);
    ::close(from.fd);
    from.fd = -1;
  }
}

void Launcher::drain() {
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    pump(r, 0);
    pump(r, 1);
  }
}

std::vector<RankEnd> Launcher::reap(std::uint32_t attempt) {
  std::vector<RankEnd> ends;
  int status = 0;
  pid_t pid = 0;
  while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
    const auto found = std::ranges::find_if(
        ranks_, [&](const Rank& rank) { return rank.alive && rank.pid == pid; });
    if (found == ranks_.end()) continue;  // an orphan that came to us
    found->alive = false;
    RankEnd end;
    end.rank = static_cast<std::uint32_t>(found - ranks_.begin());
    end.attempt = attempt;
    end.pid = pid;
    end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    end.seconds = seconds_since(began_);
    end.told = stopping_;
    ends.push_back(end);
  }
  // Of several found together the killed one is the likelier cause.
  std::ranges::stable_sort(ends, {}, [](const RankEnd& end) { return end.signal == 0; });
  return ends;
}

void Launcher::stop(LaunchVerdict& verdict, LaunchOutcome why, int signal) {
  verdict.outcome = why;
  stopping_ = true;
  kill_at_ = Deadline::after(options_.grace);
  const std::size_t left = alive();
  if (left == 0) return;
  notice(fmt::format("{}; stopping {} rank{}, killing after {:.1f} s", verdict.sentence(), left,
                     left == 1 ? "" : "s", std::chrono::duration<double>(options_.grace).count()));
  for (const Rank& rank : ranks_) {
    if (!rank.alive) continue;
    ::kill(-rank.pid, signal);
    ::kill(-rank.pid, SIGCONT);  // a stopped one could not act on it
  }
}

Status Launcher::supervise(std::uint32_t attempt, LaunchVerdict& verdict) {
  int stop_signals = 0;
  verdict.outcome = LaunchOutcome::kDone;
  while (alive() > 0) {
    std::vector<pollfd> files = {{signals_.fd(), POLLIN, 0}};
    std::vector<std::pair<std::uint32_t, int>> whose = {{0, 0}};
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      for (int s = 0; s < 2; ++s) {
        if (ranks_[r].streams[s].fd < 0) continue;
        files.push_back({ranks_[r].streams[s].fd, POLLIN, 0});
        whose.emplace_back(r, s);
      }
    }
    const Deadline next = stopping_ ? kill_at_ : limit_;
    ::poll(files.data(), files.size(), std::min(next.left_ms(), 1000));
    for (std::size_t i = 1; i < files.size(); ++i) {
      if (files[i].revents != 0) pump(whose[i].first, whose[i].second);
    }
    const int signal = signals_.take(stop_signals);
    for (const RankEnd& end : reap(attempt)) {
      pump(end.rank, 0);
      pump(end.rank, 1);
      if (listener_.ended) listener_.ended(end);
      if (end.good() || stopping_) continue;
      verdict.first = end;
      verdict.last_lines.assign(ranks_[end.rank].last.begin(), ranks_[end.rank].last.end());
      stop(verdict, LaunchOutcome::kRankFailed, SIGTERM);
    }
    if (signal != 0 && !stopping_) {
      verdict.signal = signal;
      stop(verdict, LaunchOutcome::kInterrupted, signal);
    } else if (signal != 0 && verdict.outcome != LaunchOutcome::kInterrupted) {
      // On the way to a restart: that one does not happen.
      verdict.signal = signal;
      verdict.outcome = LaunchOutcome::kInterrupted;
    }
    if (!stopping_ && limit_.expired()) stop(verdict, LaunchOutcome::kTimedOut, SIGTERM);
    if (stopping_ && (kill_at_.expired() || stop_signals > 1)) {
      for (const Rank& rank : ranks_) {
        if (rank.alive) ::kill(-rank.pid, SIGKILL);
      }
    }
  }
  // Whatever left its rank's process group, or stayed when its rank ended.
  WEFT_ASSIGN(verdict.strays, kill_descendants(Deadline::after(kKillTime)));
  drain();
  return {};
}

}  // namespace

Result<LaunchVerdict> launch(const LaunchOptions& options, const LaunchListener& listener) {
  const auto begin = Clock::now();
  const Deadline limit = options.time_limit.count() > 0 ? Deadline::after(options.time_limit)
                                                        : Deadline::after(std::chrono::years(50));
  Launcher launcher(options, listener, limit);
  WEFT_TRY(launcher.prepare());
  LaunchVerdict verdict;
  verdict.job = launcher.job();
  for (std::uint32_t attempt = 0;; ++attempt) {
    verdict.attempts = attempt + 1;
    if (const Status started = launcher.start(attempt); !started) {
      (void)kill_descendants(Deadline::after(kKillTime));
      return std::unexpected(started.error());
    }
    WEFT_TRY(launcher.supervise(attempt, verdict));
    if (verdict.outcome != LaunchOutcome::kRankFailed || attempt >= options.restarts) break;
    launcher.notice(fmt::format("{}; restart {} of {}", verdict.first.sentence(), attempt + 1,
                                options.restarts));
  }
  verdict.seconds = seconds_since(begin);
  return verdict;
}

}  // namespace weft::node
