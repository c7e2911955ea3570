#include "weft/comm/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <thread>

#include "weft/comm/member_address.h"

namespace weft::comm {
namespace {

constexpr std::uint64_t kMagic = 0x3147455354464557ULL;  // "WEFTSEG1"
constexpr int kSpins = 2000;  // about 20 us of looking when every rank has a core
constexpr int kYields = 40;   // before a sleep
constexpr long kSleepNs = 2'000'000;

struct Place {
  std::atomic<std::int64_t> pid;  // 0 until the rank entered
  std::uint64_t started;
};

std::size_t rank_bytes() { return 2 * kOneShotBytes + kStages * kStageBytes; }

std::size_t areas_at(std::uint32_t ranks, std::size_t head) {
  return (head + ranks * sizeof(Place) + 4095) / 4096 * 4096;
}
std::size_t staging_at(std::uint32_t ranks, std::size_t head) {
  return (areas_at(ranks, head) + ranks * sizeof(RankArea) + 4095) / 4096 * 4096;
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, long ns) {
  timespec time{.tv_sec = 0, .tv_nsec = ns};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::string file_of(std::string_view name) { return fmt::format("/dev/shm/{}", name); }

}  // namespace

struct Segment::Head {
  std::atomic<std::uint64_t> magic;
  std::uint64_t group;
  std::uint32_t epoch;
  std::uint32_t ranks;
  alignas(128) std::atomic<std::uint64_t> verdict;
  alignas(128) std::atomic<std::uint64_t> entered;
  alignas(128) std::atomic<std::uint32_t> sleepers;
  alignas(128) std::atomic<std::uint32_t> bell;
  alignas(128) Place places[];
};

Result<std::unique_ptr<Segment>> Segment::map(int fd, std::uint32_t ranks) {
  auto segment = std::unique_ptr<Segment>(new Segment);
  segment->ranks_ = ranks;
  segment->size_ = staging_at(ranks, sizeof(Head)) + ranks * rank_bytes();
  void* base =
      ::mmap(nullptr, segment->size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  ::close(fd);
  if (base == MAP_FAILED) {
    return fail(ErrorCode::kResourceExhausted, "cannot map {} bytes of shared memory: {}",
                segment->size_, std::strerror(errno));
  }
  auto* bytes = static_cast<std::byte*>(base);
  segment->head_ = static_cast<Head*>(base);
  segment->areas_ = reinterpret_cast<RankArea*>(bytes + areas_at(ranks, sizeof(Head)));
  segment->staging_ = bytes + staging_at(ranks, sizeof(Head));
  segment->spins_ = ranks <= std::thread::hardware_concurrency() ? kSpins : 20;
  return segment;
}

Result<std::unique_ptr<Segment>> Segment::create(std::string_view name, std::uint64_t group,
                                                 std::uint32_t epoch, std::uint32_t ranks) {
  const std::string file = file_of(name);
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    return fail(ErrorCode::kIo, "cannot make shared memory {}: {}", file, std::strerror(errno));
  }
  const std::size_t size = staging_at(ranks, sizeof(Head)) + ranks * rank_bytes();
  if (::ftruncate(fd, static_cast<off_t>(size)) != 0) {
    const int error = errno;
    ::close(fd);
    ::unlink(file.c_str());
    return fail(ErrorCode::kResourceExhausted, "no room for {} bytes of shared memory: {}", size,
                std::strerror(error));
  }
  WEFT_ASSIGN(auto segment, map(fd, ranks));
  segment->head_->group = group;
  segment->head_->epoch = epoch;
  segment->head_->ranks = ranks;
  segment->head_->magic.store(kMagic, std::memory_order_release);
  return segment;
}

Result<std::unique_ptr<Segment>> Segment::join(std::string_view name, std::uint64_t group,
                                               std::uint32_t epoch, std::uint32_t ranks,
                                               Deadline deadline) {
  const std::string file = file_of(name);
  const std::size_t size = staging_at(ranks, sizeof(Head)) + ranks * rank_bytes();
  for (;;) {
    const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
    struct stat info{};
    if (fd >= 0 && ::fstat(fd, &info) == 0 && static_cast<std::size_t>(info.st_size) == size) {
      WEFT_ASSIGN(auto segment, map(fd, ranks));
      if (segment->head_->magic.load(std::memory_order_acquire) == kMagic) {
        const Head& head = *segment->head_;
        if (head.group != group || head.epoch != epoch || head.ranks != ranks) {
          return fail(ErrorCode::kCorrupt, "{} belongs to group {} epoch {} of {} ranks", file,
                      head.group, head.epoch, head.ranks);
        }
        return segment;
      }
    } else if (fd >= 0) {
      ::close(fd);
    }
    WEFT_TRY(deadline.check(fmt::format("joining shared memory {}", file)));
    ::usleep(100);
  }
}

Segment::~Segment() {
  for (const int fd : pidfds_) {
    if (fd >= 0) ::close(fd);
  }
  if (head_ != nullptr) ::munmap(head_, size_);
}

void Segment::unlink(std::string_view name) { ::unlink(file_of(name).c_str()); }

Status Segment::enter(std::uint32_t rank, Deadline deadline) {
  WEFT_CHECK(rank < ranks_);
  rank_ = rank;
  Place& mine = head_->places[rank];
  mine.started = process_started(::getpid());
  std::int64_t empty = 0;
  if (!mine.pid.compare_exchange_strong(empty, ::getpid(), std::memory_order_release)) {
    return fail(ErrorCode::kInvalidArgument, "rank {} is taken by process {}", rank, empty);
  }
  std::memset(stage(rank, 0) - 2 * kOneShotBytes, 0, rank_bytes());  // no page faults later
  head_->entered.fetch_add(1, std::memory_order_acq_rel);
  for (;;) {
    if (head_->entered.load(std::memory_order_acquire) >= ranks_) break;
    if (aborted()) return std::unexpected(verdict_error());
    if (deadline.expired()) {
      std::uint32_t missing = 0;
      while (missing < ranks_ && head_->places[missing].pid.load() != 0) ++missing;
      return fail(ErrorCode::kDeadlineExceeded, "group {} epoch {}: rank {} did not come",
                  head_->group, head_->epoch, missing);
    }
    ::usleep(50);
  }
  pidfds_.assign(ranks_, -1);
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    const std::int64_t pid = head_->places[r].pid.load(std::memory_order_acquire);
    if (pid == ::getpid()) continue;
    const int fd = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
    if (fd < 0 || process_started(pid) != head_->places[r].started) {
      if (fd >= 0) ::close(fd);
      abort({Verdict::Cause::kDead, r, 0});
      return std::unexpected(verdict_error());
    }
    pidfds_[r] = fd;
  }
  return {};
}

std::byte* Segment::one_shot(std::uint32_t rank, std::uint64_t operation) const {
  return staging_ + rank * rank_bytes() + (operation % 2) * kOneShotBytes;
}

std::byte* Segment::stage(std::uint32_t rank, std::uint64_t block) const {
  return staging_ + rank * rank_bytes() + 2 * kOneShotBytes + (block % kStages) * kStageBytes;
}

void Segment::publish(std::atomic<std::uint64_t>& word, std::uint64_t value) {
  // Sequentially consistent, so that either we see the sleeper or it sees the value.
  word.store(value, std::memory_order_seq_cst);
  if (head_->sleepers.load(std::memory_order_seq_cst) == 0) return;
  head_->bell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(head_->bell);
}

bool Segment::dead(std::uint32_t rank) const {
  if (rank >= pidfds_.size() || pidfds_[rank] < 0) return false;
  pollfd fd{.fd = pidfds_[rank], .events = POLLIN, .revents = 0};
  return ::poll(&fd, 1, 0) > 0;
}

std::uint32_t Segment::culprit(std::uint32_t late) const {
  std::uint32_t at = late;
  for (std::uint32_t step = 0; step < ranks_; ++step) {
    const std::uint32_t next = areas_[at].waits_for.load(std::memory_order_acquire);
    if (next == 0) return at;
    if (next - 1 >= ranks_ || next - 1 == rank_) break;
    at = next - 1;
  }
  // Mycroft's rule for laggards: the least announced, then the least staged and combined.
  const auto progress = [&](std::uint32_t r) {
    const RankArea& a = areas_[r];
    const std::uint64_t announced =
        std::max(a.slots[0].sequence.load(), a.slots[1].sequence.load());
    return std::pair(announced, a.staged.load() + a.ready.load());
  };
  std::uint32_t least = late;
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    if (r != rank_ && progress(r) < progress(least)) least = r;
  }
  return least;
}

Status Segment::wait_slowly(const std::atomic<std::uint64_t>& word, std::uint64_t value,
                            std::uint32_t late, std::uint64_t operation, Deadline deadline) {
  const auto there = [&](std::memory_order order) { return word.load(order) >= value; };
  for (int i = 0; i < spins_; ++i) {
    if (there(std::memory_order_acquire)) return {};
    __builtin_ia32_pause();
  }
  for (int i = 0; i < kYields; ++i) {
    ::sched_yield();
    if (there(std::memory_order_acquire)) return {};
  }
  struct Waiting {  // while we sleep, others may ask for whom
    std::atomic<std::uint32_t>& word;
    ~Waiting() { word.store(0, std::memory_order_release); }
  } waiting{areas_[rank_].waits_for};
  waiting.word.store(late + 1, std::memory_order_release);
  for (;;) {
    head_->sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t bell = head_->bell.load(std::memory_order_seq_cst);
    if (!there(std::memory_order_seq_cst) && !aborted()) futex_wait(head_->bell, bell, kSleepNs);
    head_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (there(std::memory_order_acquire)) return {};
    if (aborted()) return std::unexpected(verdict_error());
    if (dead(late)) {
      // What it published before it died counts: look once more.
      if (there(std::memory_order_acquire)) return {};
      abort({Verdict::Cause::kDead, late, static_cast<std::uint32_t>(operation)});
      return std::unexpected(verdict_error());
    }
    if (deadline.expired()) {
      abort({Verdict::Cause::kLate, culprit(late), static_cast<std::uint32_t>(operation)});
      return std::unexpected(verdict_error());
    }
  }
}

Verdict Segment::abort(const Verdict& verdict) {
  std::uint64_t none = 0;
  head_->verdict.compare_exchange_strong(none, pack(verdict), std::memory_order_seq_cst);
  head_->bell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(head_->bell);
  return unpack_verdict(head_->verdict.load(std::memory_order_seq_cst));
}

bool Segment::aborted() const { return head_->verdict.load(std::memory_order_acquire) != 0; }

Error Segment::verdict_error() const {
  return error_of(unpack_verdict(head_->verdict.load(std::memory_order_acquire)), head_->group,
                  head_->epoch);
}

}  // namespace weft::comm
