#include "bench/collectives.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "bench/peer.h"
#include "weft/base/file.h"
#include "weft/base/hash.h"
#include "weft/comm/communicator.h"
#include "weft/comm/transport.h"

namespace weft::bench {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr const char* kOps[] = {"allreduce", "allgather", "reducescatter", "broadcast", "alltoall"};
constexpr auto kCaseTime = std::chrono::minutes(2);

std::string size_name(std::int64_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{}MiB", bytes >> 20);
  if (bytes >= 1 << 10) return fmt::format("{}KiB", bytes >> 10);
  return fmt::format("{}B", bytes);
}

int iterations_of(std::int64_t bytes, std::int64_t ranks) {
  return static_cast<int>(
      std::clamp<std::int64_t>(200'000'000 / ((bytes + 50'000) * ranks), 3, 2000));
}

// Ranks of one kind that wait for commands on a FIFO each; rank 0 answers.
class Contender {
 public:
  Contender(std::string name, fs::path directory, std::int64_t ranks)
      : name_(std::move(name)), directory_(std::move(directory)), ranks_(ranks) {
    fs::create_directories(directory_);
    for (std::int64_t r = 0; r < ranks; ++r) ::mkfifo(command(r).c_str(), 0600);
    ::mkfifo(reply().c_str(), 0600);
  }
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;
  ~Contender() {
    for (const int fd : commands_) ::close(fd);  // end of input: they leave
    if (replies_ >= 0) ::close(replies_);
    const Deadline patience = Deadline::after(3s);
    for (const pid_t child : children_) {
      while (::waitpid(child, nullptr, WNOHANG) == 0) {
        if (patience.expired()) {
          ::kill(child, SIGKILL);
          ::waitpid(child, nullptr, 0);
          break;
        }
        ::usleep(1000);
      }
    }
    std::error_code error;
    fs::remove_all(directory_, error);
  }

  fs::path command(std::int64_t rank) const { return directory_ / fmt::format("command-{}", rank); }
  fs::path prefix() const { return directory_ / "command-"; }
  fs::path reply() const { return directory_ / "reply"; }
  const fs::path& directory() const { return directory_; }

  // Runs `words` as a process of its own, or `body` in a fork.
  Status spawn(const std::vector<std::string>& words, const std::function<int()>& body = {}) {
    const pid_t child = ::fork();
    if (child < 0) return fail(ErrorCode::kResourceExhausted, "fork: {}", std::strerror(errno));
    if (child > 0) {
      children_.push_back(child);
      return {};
    }
    if (body) ::_exit(body());
    const int log = ::open((directory_ / "log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(log, 1);
    ::dup2(log, 2);
    ::unsetenv("PYTHONPATH");
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }

  // Opens the FIFOs and waits for the first answer.
  Status ready() {
    // Read and write, so that opening does not wait for the other end.
    replies_ = ::open(reply().c_str(), O_RDWR | O_CLOEXEC);
    for (std::int64_t r = 0; r < ranks_; ++r) {
      commands_.push_back(::open(command(r).c_str(), O_RDWR | O_CLOEXEC));
    }
    WEFT_ASSIGN(const std::string line, read_line(Deadline::after(60s)));
    // Now that the ranks hold their ends: only writers, so that closing is the end.
    for (std::int64_t r = 0; r < ranks_; ++r) {
      const int writer = ::open(command(r).c_str(), O_WRONLY | O_CLOEXEC);
      ::close(std::exchange(commands_[static_cast<std::size_t>(r)], writer));
    }
    return {};
  }

  Result<double> time(const std::string& op, std::int64_t bytes, int iterations) {
    const std::string line = fmt::format("{} {} {}\n", op, bytes, iterations);
    for (const int fd : commands_) {
      if (::write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
        return fail(ErrorCode::kUnavailable, "{} does not take commands", name_);
      }
    }
    WEFT_ASSIGN(const std::string answer, read_line(Deadline::after(kCaseTime)));
    return std::strtod(answer.c_str(), nullptr);
  }

 private:
  Result<std::string> read_line(Deadline deadline) {
    for (;;) {
      if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return line;
      }
      pollfd fd{.fd = replies_, .events = POLLIN, .revents = 0};
      if (::poll(&fd, 1, std::min(deadline.left_ms(), 100)) > 0) {
        char bytes[256];
        const ssize_t count = ::read(replies_, bytes, sizeof(bytes));
        if (count > 0) buffer_.append(bytes, static_cast<std::size_t>(count));
        continue;
      }
      for (const pid_t child : children_) {
        int status = 0;
        if (::waitpid(child, &status, WNOHANG) == child) {
          std::erase(children_, child);
          return fail(ErrorCode::kUnavailable, "{} ended with status {}: {}", name_, status,
                      log_tail());
        }
      }
      WEFT_TRY(deadline.check(name_));
    }
  }
  std::string log_tail() const {
    const std::string log = read_file(directory_ / "log").value_or("");
    return log.substr(log.size() > 400 ? log.size() - 400 : 0);
  }

  std::string name_;
  fs::path directory_;
  std::int64_t ranks_;
  std::vector<pid_t> children_;
  std::vector<int> commands_;
  int replies_ = -1;
  std::string buffer_;
};

// One of our ranks: the same loop as the peers'.
int our_rank(const Contender& contender, std::uint32_t rank, std::uint32_t ranks, bool shared,
             std::int64_t max_bytes, bool trace) {
  using namespace comm;
  auto rendezvous = FileRendezvous::create(contender.directory() / "meeting");
  GroupView view{.id = 1, .epoch = 1, .members = {}};
  for (std::uint32_t r = 0; r < ranks; ++r) view.members.push_back(r);
  CommunicatorOptions options;
  options.job = fmt::format("bench-{}", ::getppid());
  options.shared_memory = shared;
  std::unique_ptr<Transport> transport;
  if (!shared) {
    TransportOptions settings;
    settings.self = rank;
    settings.transports = "tcp";
    auto made = Transport::create(settings);
    if (!made) return 1;
    transport = std::move(*made);
    options.transport = transport.get();
  }
  std::optional<Ring> ring;
  if (trace) {
    auto made = Ring::create(contender.directory() / fmt::format("ring-{}", rank), {.lanes = 1});
    if (!made) return 1;
    ring.emplace(std::move(*made));
    options.trace = *ring->claim_lane("main");
  }
  auto opened = Communicator::open(view, rank, *rendezvous, options, Deadline::after(30s));
  if (!opened) {
    std::fprintf(stderr, "weft bench: %s\n", opened.error().message.c_str());
    return 1;
  }
  Communicator& c = **opened;
  std::vector<float> in(static_cast<std::size_t>(max_bytes) / 4 + 16);
  std::vector<float> out(in.size());
  std::ifstream commands(contender.command(rank));
  std::ofstream replies;
  if (rank == 0) {
    replies.open(contender.reply());
    replies << "ready" << std::endl;
  }
  std::string op;
  std::uint64_t bytes = 0;
  int iterations = 0;
  while (commands >> op >> bytes >> iterations) {
    const std::uint64_t count = bytes / 4;
    const std::vector<std::uint64_t> parts(ranks, count / ranks);
    const Deadline deadline = Deadline::after(kCaseTime);
    const auto once = [&]() -> Status {
      if (op == "allreduce") {
        return c.all_reduce(in.data(), out.data(), count, DType::kF32, ReduceOp::kSum, deadline);
      }
      if (op == "allgather")
        return c.all_gather(in.data(), out.data(), parts, DType::kF32, deadline);
      if (op == "reducescatter") {
        return c.reduce_scatter(in.data(), out.data(), parts, DType::kF32, ReduceOp::kSum,
                                deadline);
      }
      if (op == "broadcast") return c.broadcast(out.data(), count, DType::kF32, 0, deadline);
      return c.all_to_all(in.data(), out.data(), parts, parts, DType::kF32, deadline);
    };
    auto start = std::chrono::steady_clock::now();
    for (int i = -2; i < iterations; ++i) {
      if (i == 0) {
        if (!c.barrier(deadline)) return 1;
        start = std::chrono::steady_clock::now();
      }
      if (const Status status = once(); !status) {
        std::fprintf(stderr, "weft bench: %s\n", status.error().message.c_str());
        return 1;
      }
    }
    if (!c.barrier(deadline)) return 1;
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
        iterations;
    if (rank == 0) replies << fmt::format("{:.9e}", seconds) << std::endl;
  }
  return 0;
}

// The Open MPI program, compiled once for each version of its source.
Result<fs::path> mpi_program() {
  const fs::path source = fs::path(WEFT_PEER_SCRIPTS) / "mpi_collectives.c";
  WEFT_ASSIGN(const std::string text, read_file(source));
  WEFT_ASSIGN(const fs::path cache, cache_dir());
  fs::create_directories(cache / "bench");
  const fs::path program =
      cache / "bench" / fmt::format("mpi_collectives-{:016x}", xxh3_64(bytes_of(text)));
  if (fs::exists(program)) return program;
  const std::string command =
      fmt::format("mpicc -O2 -o '{}' '{}' >/dev/null 2>&1", program.string(), source.string());
  if (std::system(command.c_str()) != 0) {
    return fail(ErrorCode::kUnavailable, "mpicc is not there; run `make peers`");
  }
  return program;
}

struct Team {
  std::unique_ptr<Contender> ours, open_mpi, gloo;
};

Result<Team> assemble(const CollectiveOptions& options, bool shared, std::int64_t ranks,
                      const fs::path& directory) {
  Team team;
  team.ours = std::make_unique<Contender>("weft", directory / "weft", ranks);
  for (std::int64_t r = 0; r < ranks; ++r) {
    WEFT_TRY(team.ours->spawn({}, [&, r] {
      return our_rank(*team.ours, static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(ranks),
                      shared, options.max_bytes, options.trace);
    }));
  }
  WEFT_TRY(team.ours->ready());
  if (!options.peers) return team;
  const std::string most = std::to_string(options.max_bytes);
  if (const auto program = mpi_program(); program) {
    team.open_mpi = std::make_unique<Contender>("Open MPI", directory / "mpi", ranks);
    const std::string transport = shared ? "self,vader" : "self,tcp";
    WEFT_TRY(team.open_mpi->spawn({"mpirun", "--allow-run-as-root", "--oversubscribe", "-np",
                                   std::to_string(ranks), "--mca", "pml", "ob1", "--mca", "btl",
                                   transport, "--mca", "btl_tcp_if_include", "lo",
                                   program->string(), team.open_mpi->prefix().string(),
                                   team.open_mpi->reply().string(), most}));
    WEFT_TRY(team.open_mpi->ready());
  } else {
    std::fprintf(stderr, "weft bench: without Open MPI: %s\n", program.error().message.c_str());
  }
  if (const auto python = peer_python(); python) {
    team.gloo = std::make_unique<Contender>("Gloo", directory / "gloo", ranks);
    for (std::int64_t r = 0; r < ranks; ++r) {
      WEFT_TRY(team.gloo->spawn(
          {python->string(), (fs::path(WEFT_PEER_SCRIPTS) / "gloo_collectives.py").string(),
           std::to_string(r), std::to_string(ranks), (directory / "gloo" / "store").string(),
           team.gloo->prefix().string(), team.gloo->reply().string(), most}));
    }
    WEFT_TRY(team.gloo->ready());
  } else {
    std::fprintf(stderr, "weft bench: without Gloo: %s\n", python.error().message.c_str());
  }
  return team;
}

Result<CollectiveResult> run_one(Team& team, CollectiveResult result, int rounds) {
  const int iterations = iterations_of(result.bytes, result.ranks);
  double best_peer = 1e30;
  std::vector<double> ratios;
  result.ours = 1e30;
  for (int round = 0; round < rounds; ++round) {
    WEFT_ASSIGN(const double ours, team.ours->time(result.op, result.bytes, iterations));
    result.ours = std::min(result.ours, ours);
    double peer = 1e30;
    const auto measure = [&](Contender* contender, std::optional<double>& best) -> Status {
      if (contender == nullptr) return {};
      WEFT_ASSIGN(const double seconds, contender->time(result.op, result.bytes, iterations));
      if (seconds <= 0) return {};  // it has no such operation
      best = std::min(best.value_or(1e30), seconds);
      peer = std::min(peer, seconds);
      return {};
    };
    WEFT_TRY(measure(team.open_mpi.get(), result.open_mpi));
    WEFT_TRY(measure(team.gloo.get(), result.gloo));
    if (peer < 1e30) ratios.push_back(peer / ours);
    best_peer = std::min(best_peer, peer);
  }
  if (!ratios.empty()) {
    result.ratio = best_peer / result.ours;
    result.ratio_low = std::ranges::min(ratios);
    result.ratio_high = std::ranges::max(ratios);
  }
  return result;
}

}  // namespace

double CollectiveResult::bus_bytes_per_s() const {
  const auto n = static_cast<double>(ranks);
  const double factor = op == "allreduce" ? 2 * (n - 1) / n : op == "broadcast" ? 1 : (n - 1) / n;
  return static_cast<double>(bytes) / ours * factor;
}

Json to_json(const CollectiveResult& result) {
  const auto maybe = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json(nullptr);
  };
  return Json{{"case", result.name},
              {"unit", "seconds"},
              {"ours", result.ours},
              {"open_mpi", maybe(result.open_mpi)},
              {"gloo", maybe(result.gloo)},
              {"ratio", maybe(result.ratio)},
              {"ratio_low", maybe(result.ratio_low)},
              {"ratio_high", maybe(result.ratio_high)},
              {"bus_bytes_per_s", result.bus_bytes_per_s()}};
}

Status run_collectives(const CollectiveOptions& options,
                       const std::function<void(const CollectiveResult&)>& report) {
  for (const bool shared : {true, false}) {
    for (const std::int64_t ranks : options.ranks) {
      std::vector<CollectiveResult> cases;
      for (const char* op : kOps) {
        for (std::int64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 4) {
          CollectiveResult c;
          c.op = op;
          c.ranks = ranks;
          c.bytes = bytes;
          c.name =
              fmt::format("{}/{}/np={}/{}", shared ? "shm" : "tcp", op, ranks, size_name(bytes));
          const bool divides = bytes / 4 >= ranks || c.op == "allreduce" || c.op == "broadcast";
          if (divides && c.name.find(options.only) != std::string::npos) cases.push_back(c);
        }
      }
      if (cases.empty()) continue;
      const fs::path directory =
          fs::temp_directory_path() / fmt::format("weft-bench-{}", ::getpid());
      WEFT_ASSIGN(Team team, assemble(options, shared, ranks, directory));
      for (const CollectiveResult& c : cases) {
        WEFT_ASSIGN(const CollectiveResult result, run_one(team, c, options.rounds));
        report(result);
      }
      team = {};
      std::error_code error;
      fs::remove_all(directory, error);
    }
  }
  return {};
}

}  // namespace weft::bench
