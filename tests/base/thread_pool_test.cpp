#include "weft/base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace weft {
namespace {

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(ThreadPool, VisitsEachItemOnceForAnySizeAndGrain) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t n : {0, 1, 2, 5, 64, 1000}) {
      for (const std::int64_t grain : {1, 3, 100}) {
        std::vector<int> visits(static_cast<std::size_t>(n));
        std::atomic<int> pieces{0};
        pool.parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
          ++pieces;
          EXPECT_TRUE(end - begin >= std::min(grain, n));
          for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        });
        EXPECT_EQ(std::count(visits.begin(), visits.end(), 1), n);
        EXPECT_LE(pieces, threads);
      }
    }
  }
}

TEST(ThreadPool, ManyShortJobsLoseNothing) {
  ThreadPool pool(4);
  std::vector<std::int64_t> sums(4);
  for (int job = 0; job < 20'000; ++job) {
    pool.parallel_for(4, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++sums[static_cast<std::size_t>(i)];
    });
    if (job % 5000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(sums, std::vector<std::int64_t>(4, 20'000));
}

TEST(ThreadPool, CallsFromSeveralThreadsTakeTurns) {
  ThreadPool pool(3);
  std::atomic<std::int64_t> total{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        pool.parallel_for(30, 1,
                          [&](std::int64_t begin, std::int64_t end) { total += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 500 * 30);
}

TEST(ThreadPool, ACallFromInsideAPieceRunsInline) {
  ThreadPool pool(2);
  std::atomic<int> inner{0};
  pool.parallel_for(2, 1, [&](std::int64_t, std::int64_t) {
    const auto self = std::this_thread::get_id();
    pool.parallel_for(10, 1, [&](std::int64_t begin, std::int64_t end) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      inner += static_cast<int>(end - begin);
    });
  });
  EXPECT_EQ(inner, 20);
}

TEST(ThreadPool, IdleThreadsUseNoProcessor) {
  ThreadPool pool(4);
  pool.parallel_for(4, 1, [](std::int64_t, std::int64_t) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(cpu_seconds() - before, 0.02);
}

}  // namespace
}  // namespace weft
