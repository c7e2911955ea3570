// Real processes, killed or stopped inside collectives: survivors end in time, with
// one verdict, and never deliver a wrong sum as a right one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "tests/comm/ranks.h"
#include "tests/support/data.h"

namespace weft::comm {
namespace {

enum class Fault { kKill, kStop, kKillTwo, kDrop, kDisturb };

// What a rank says of its run, in memory shared with the test.
struct Report {
  std::atomic<int> state{0};  // 1 running, 2 ended, 3 wrong result
  std::atomic<std::uint64_t> operation{0};
  char message[200] = {};
};

struct Schedule {
  Path path;
  std::uint32_t ranks;
  Fault fault;
  std::uint32_t victim;
  std::uint64_t at_operation;  // of the victim
  unsigned microseconds;       // after it began
  std::uint64_t seed;
};

std::string name_of(const Schedule& s) {
  return fmt::format("seed {}: {} ranks over {}, fault {} on rank {} {} us after operation {}",
                     s.seed, s.ranks, s.path == Path::kShared ? "shared memory" : "tcp",
                     static_cast<int>(s.fault), s.victim, s.microseconds, s.at_operation);
}

constexpr auto kDeadline = std::chrono::milliseconds(200);

// A rank: all-reduces and broadcasts of changing sizes until an error; each is checked.
void run_rank(const Schedule& s, std::uint32_t rank, const std::string& job, Report& report) {
  auto rendezvous = *FileRendezvous::create("/dev/shm/" + job);
  GroupView view{.id = 3, .epoch = 1, .members = {}};
  for (std::uint32_t r = 0; r < s.ranks; ++r) view.members.push_back(r);
  CommunicatorOptions options;
  options.job = job;
  options.shared_memory = s.path == Path::kShared;
  std::unique_ptr<Transport> transport;
  if (s.path == Path::kNetwork) {
    TransportOptions t;
    t.self = rank;
    t.transports = "tcp";
    transport = *Transport::create(t);
    options.transport = transport.get();
  }
  auto opened = Communicator::open(view, rank, rendezvous, options, soon());
  if (!opened) {  // a member died while the group was made: that is a verdict too
    std::snprintf(report.message, sizeof(report.message), "%s", opened.error().message.c_str());
    report.state = 2;
    ::_exit(0);
  }
  Communicator& c = **opened;
  if (transport != nullptr && (s.fault == Fault::kDrop || s.fault == Fault::kDisturb)) {
    LinkShape shape;
    shape.seed = s.seed * 8 + rank;
    if (s.fault == Fault::kDisturb) {
      shape.duplicate = 0.2;
      shape.reorder = 0.2;
      shape.delay_ns = 100'000;
    } else if (rank == s.victim) {
      shape.drop = 0.05;
    }
    for (std::uint32_t r = 0; r < s.ranks; ++r) {
      if (r != rank) transport->shape(r, shape);
    }
  }
  report.state = 1;
  std::mt19937 random(static_cast<unsigned>(s.seed));  // the same on all ranks
  Status status;
  const bool endless = s.fault != Fault::kDisturb;
  for (std::uint64_t i = 1; endless || i <= 30; ++i) {
    const std::uint32_t sizes[] = {1, 20, 3000, 30'000, 150'000};
    const std::uint32_t count = sizes[random() % 5];
    const std::uint32_t root = random() % s.ranks;
    const bool sum = random() % 2 == 0;
    std::vector<std::int32_t> data(count, static_cast<std::int32_t>(rank + i));
    report.operation.store(i);
    status = sum ? c.all_reduce(data.data(), data.data(), count, DType::kI32, ReduceOp::kSum,
                                Deadline::after(kDeadline))
                 : c.broadcast(data.data(), count, DType::kI32, root, Deadline::after(kDeadline));
    if (!status) break;
    const auto expected =
        static_cast<std::int32_t>(sum ? s.ranks * (s.ranks - 1) / 2 + s.ranks * i : root + i);
    for (const std::int32_t value : data) {
      if (value != expected) {
        report.state = 3;
        ::_exit(4);
      }
    }
  }
  // The same verdict again from the next call.
  if (!status) {
    const Status again = c.barrier(Deadline::after(kDeadline));
    const bool same = !again && again.error().message == status.error().message;
    std::snprintf(report.message, sizeof(report.message), "%s%s",
                  same ? "" : "changed: ", status.error().message.c_str());
  }
  report.state = 2;
  opened->reset();
  ::_exit(0);
}

// Runs one schedule; what went wrong, or empty.
std::string run_schedule(const Schedule& s, Report* reports) {
  const std::string job = "weft-" + fresh_job();
  for (std::uint32_t r = 0; r < s.ranks; ++r) new (&reports[r]) Report;
  std::vector<pid_t> children;
  for (std::uint32_t r = 0; r < s.ranks; ++r) {
    const pid_t child = ::fork();
    if (child == 0) run_rank(s, r, job, reports[r]);
    children.push_back(child);
  }
  const bool signals =
      s.fault == Fault::kKill || s.fault == Fault::kStop || s.fault == Fault::kKillTwo;
  const Deadline begin = Deadline::after(std::chrono::seconds(20));
  std::vector<std::uint32_t> victims;
  if (signals) {
    victims.push_back(s.victim);
    if (s.fault == Fault::kKillTwo && s.ranks > 2) victims.push_back((s.victim + 1) % s.ranks);
    while (reports[s.victim].operation.load() < s.at_operation && !begin.expired()) ::usleep(20);
    ::usleep(s.microseconds);
    for (const std::uint32_t v : victims) {
      ::kill(children[v], s.fault == Fault::kStop ? SIGSTOP : SIGKILL);
    }
  }
  std::string wrong;
  const auto add = [&](std::string text) { wrong += (wrong.empty() ? "" : "; ") + text; };
  // Survivors end by the operation's deadline and some for the machine.
  const Deadline end =
      Deadline::after(kDeadline + std::chrono::seconds(s.fault == Fault::kDisturb ? 20 : 4));
  std::string verdict;
  for (std::uint32_t r = 0; r < s.ranks; ++r) {
    const bool victim = std::ranges::find(victims, r) != victims.end();
    if (victim) continue;
    int status = 0;
    pid_t ended = 0;
    while ((ended = ::waitpid(children[r], &status, WNOHANG)) == 0 && !end.expired()) ::usleep(200);
    if (ended == 0) {
      add(fmt::format("rank {} hangs", r));
      ::kill(children[r], SIGKILL);
      ::waitpid(children[r], &status, 0);
      continue;
    }
    children[r] = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      add(fmt::format("rank {} ended with status {}{}", r, status,
                      reports[r].state == 3 ? " (a wrong result)" : ""));
      continue;
    }
    const std::string message = reports[r].message;
    if (s.fault == Fault::kDisturb) {
      if (!message.empty()) add(fmt::format("rank {} failed: {}", r, message));
    } else if (message.empty() || message.starts_with("changed")) {
      add(fmt::format("rank {} says \"{}\"", r, message));
    } else if (!verdict.empty() && message != verdict) {
      add(fmt::format("rank {} says \"{}\", not \"{}\"", r, message, verdict));
    }
    if (verdict.empty()) verdict = message;
  }
  for (const std::uint32_t v : victims) {
    ::kill(children[v], SIGKILL);
    ::waitpid(children[v], nullptr, 0);
  }
  // With one victim the verdict names it, except that over the network a stopped one
  // looks like the rank that waits for it.
  if (signals && victims.size() == 1 && wrong.empty() &&
      (s.fault == Fault::kKill || s.path == Path::kShared) &&
      verdict.find(fmt::format("rank {} ", s.victim)) == std::string::npos) {
    add(fmt::format("the verdict blames another: {}", verdict));
  }
  std::filesystem::remove_all("/dev/shm/" + job);
  return wrong;
}

Report* shared_reports() {
  static Report* const reports = static_cast<Report*>(::mmap(
      nullptr, 16 * sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return reports;
}

void run_schedules(Path path, int count, std::uint64_t first_seed) {
  for (int i = 0; i < count; ++i) {
    Schedule s;
    s.seed = first_seed + static_cast<std::uint64_t>(i);
    std::mt19937 random(static_cast<unsigned>(s.seed * 2654435761U));
    s.path = path;
    s.ranks = 2 + random() % (test::slow_tests() ? 7 : 3);
    const Fault shared[] = {Fault::kKill, Fault::kKill, Fault::kKill, Fault::kKillTwo,
                            Fault::kStop};
    const Fault network[] = {Fault::kKill, Fault::kKill,    Fault::kKill,    Fault::kKillTwo,
                             Fault::kStop, Fault::kDisturb, Fault::kDisturb, Fault::kDrop};
    s.fault = path == Path::kShared ? shared[random() % 5] : network[random() % 8];
    s.victim = random() % s.ranks;
    s.at_operation = 1 + random() % 20;
    s.microseconds = random() % 300;
    const std::string wrong = run_schedule(s, shared_reports());
    EXPECT_EQ(wrong, "") << name_of(s);
  }
}

TEST(CollectiveFault, SchedulesOverSharedMemoryEndInOneVerdict) {
  run_schedules(Path::kShared, test::slow_tests() ? 5000 : 300, 1);
}

TEST(CollectiveFault, SchedulesOverTcpEndInOneVerdict) {
  run_schedules(Path::kNetwork, test::slow_tests() ? 5000 : 200, 1'000'000);
}

}  // namespace
}  // namespace weft::comm
