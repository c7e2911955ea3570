#include "weft/base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "weft/base/result.h"

namespace weft {
namespace {

// How long a thread looks for the next job, or for the end of this one, before
// it sleeps. A sleeping thread takes about 50 us to wake (futex, 2-core virtual
// machine), a spinning one under 1 us; a decode step leaves gaps of a few us.
constexpr auto kSpin = std::chrono::microseconds(20);

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Spins until `done()` holds or kSpin has passed; says whether it holds.
template <class Done>
bool spin(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

// Cores that this process may use: its affinity, cut by the control group's quota.
int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = 1;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  std::int64_t period = 0;
  if (quota_file >> quota >> period && quota != "max" && period > 0) {
    const std::int64_t allowed = (std::atoll(quota.c_str()) + period - 1) / period;
    if (allowed >= 1) cores = std::min(cores, static_cast<int>(allowed));
  }
  return std::max(cores, 1);
}

thread_local bool inside_piece = false;

// The job's number, its pieces and the next one to take, in one word, so that a
// piece is taken by one compare-and-swap and never from a job that has ended.
struct Ticket {
  std::uint64_t job;
  std::uint32_t pieces;
  std::uint32_t next;

  static constexpr int kBits = 12;
  static constexpr std::uint64_t kMask = (1U << kBits) - 1;
  static Ticket unpack(std::uint64_t word) {
    return {word >> (2 * kBits), static_cast<std::uint32_t>((word >> kBits) & kMask),
            static_cast<std::uint32_t>(word & kMask)};
  }
  std::uint64_t pack() const { return job << (2 * kBits) | std::uint64_t{pieces} << kBits | next; }
};

}  // namespace

struct ThreadPool::Impl {
  using Body = std::function<void(std::int64_t, std::int64_t)>;

  std::mutex turn;  // one job at a time
  // Written by the owner of `turn` before it publishes the ticket, read by
  // whoever took a piece: the job cannot end before that piece does.
  const Body* body = nullptr;
  std::int64_t n = 0;

  alignas(64) std::atomic<std::uint64_t> ticket{0};
  alignas(64) std::atomic<std::uint32_t> remaining{0};
  alignas(64) std::atomic<std::uint32_t> bell{0};  // sleepers wait for a change
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;

  // Computes pieces of the current job until none is left to take.
  void take_pieces() {
    std::uint64_t word = ticket.load(std::memory_order_acquire);
    while (true) {
      Ticket current = Ticket::unpack(word);
      if (current.next >= current.pieces) return;
      const std::int64_t piece = current.next++;
      if (!ticket.compare_exchange_weak(word, current.pack(), std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
        continue;
      }
      const std::int64_t begin = n * piece / current.pieces;
      const std::int64_t end = n * (piece + 1) / current.pieces;
      inside_piece = true;
      (*body)(begin, end);
      inside_piece = false;
      if (remaining.fetch_sub(1, std::memory_order_acq_rel) == 1) remaining.notify_one();
      word = ticket.load(std::memory_order_acquire);
    }
  }

  bool work_waits() const {
    const Ticket current = Ticket::unpack(ticket.load(std::memory_order_acquire));
    return current.next < current.pieces;
  }

  void run_worker() {
    while (!stop.load()) {
      if (spin([&] { return work_waits() || stop.load(std::memory_order_relaxed); })) {
        take_pieces();
        continue;
      }
      sleepers.fetch_add(1);
      const std::uint32_t heard = bell.load();
      // The publisher stores the ticket, then rings if it sees sleepers: either
      // it sees this one, or this one sees the ticket.
      if (!work_waits() && !stop.load()) bell.wait(heard);
      sleepers.fetch_sub(1);
    }
  }

  void ring() {
    bell.fetch_add(1);
    bell.notify_all();
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  WEFT_CHECK(threads >= 0, "{} threads", threads);
  if (threads == 0) threads = usable_cores();
  threads = std::min(threads, static_cast<int>(Ticket::kMask));
  for (int i = 1; i < threads; ++i) {
    impl_->workers.emplace_back([impl = impl_.get()] { impl->run_worker(); });
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true);
  impl_->ring();
  for (std::thread& worker : impl_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(impl_->workers.size()) + 1; }

void ThreadPool::parallel_for(std::int64_t n, std::int64_t grain,
                              const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (n <= 0) return;
  const std::int64_t pieces =
      std::clamp<std::int64_t>(n / std::max<std::int64_t>(grain, 1), 1, threads());
  if (pieces == 1 || inside_piece) {
    body(0, n);
    return;
  }
  Impl& impl = *impl_;
  const std::lock_guard lock(impl.turn);
  impl.body = &body;
  impl.n = n;
  impl.remaining.store(static_cast<std::uint32_t>(pieces), std::memory_order_relaxed);
  const std::uint64_t job = Ticket::unpack(impl.ticket.load(std::memory_order_relaxed)).job + 1;
  impl.ticket.store(Ticket{job, static_cast<std::uint32_t>(pieces), 0}.pack());
  if (impl.sleepers.load() > 0) impl.ring();
  impl.take_pieces();
  const auto done = [&] { return impl.remaining.load(std::memory_order_acquire) == 0; };
  if (!spin(done)) {
    for (std::uint32_t left = impl.remaining.load(); left != 0; left = impl.remaining.load()) {
      impl.remaining.wait(left);
    }
  }
}

}  // namespace weft
