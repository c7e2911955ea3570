// Prints the time of a put into a record ring, for a ring that stays in the cache
// and for the default of 8 MiB, and shows that a reader beside 10^8 puts accounts
// for every one of them.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "weft/base/ring.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Payload {
  std::uint64_t words[11];
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Nanoseconds a put: the median of 11 runs of 10^6.
double put_ns(const std::filesystem::path& path, std::size_t bytes) {
  auto ring = weft::Ring::create(path, {.writer = "bench", .lanes = 1, .bytes = bytes});
  weft::RingLane* lane = *ring->claim_lane("main");
  std::vector<double> runs;
  for (int run = 0; run < 11; ++run) {
    constexpr int kPuts = 1'000'000;
    const auto start = Clock::now();
    for (int i = 0; i < kPuts; ++i) {
      const auto n = static_cast<std::uint64_t>(i);
      lane->put(1, n, Payload{{n, n, n, n, n, n, n, n, n, n, n}});
    }
    runs.push_back(seconds_since(start) / kPuts * 1e9);
  }
  std::ranges::sort(runs);
  return runs[runs.size() / 2];
}

}  // namespace

int main() {
  const std::filesystem::path path = fmt::format("/dev/shm/weft-ring-bench-{}", ::getpid());
  std::printf("put, ring of 256 KiB: %6.1f ns\n", put_ns(path, 256 << 10));
  std::printf("put, ring of 8 MiB:   %6.1f ns\n", put_ns(path, 8 << 20));

  constexpr std::uint64_t kPuts = 100'000'000;
  auto ring = weft::Ring::create(path, {.writer = "bench", .lanes = 1});
  weft::RingLane* lane = *ring->claim_lane("main");
  const auto start = Clock::now();
  double write_seconds = 0;
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kPuts; ++i) {
      lane->put(1, i, Payload{{i, i, i, i, i, i, i, i, i, i, i}});
    }
    write_seconds = seconds_since(start);
  });
  const auto reader = *weft::RingReader::open(path);
  std::uint64_t next = 0, got = 0, lost = 0, bad = 0;
  while (next < kPuts) {
    const auto read = *reader.read(0, next);
    for (const auto& record : read.records) {
      const auto payload = record.as<Payload>();
      bad += record.ns != record.index ||
             !std::ranges::all_of(payload.words, [&](auto w) { return w == record.index; });
    }
    got += read.records.size();
    lost += read.lost;
    next = read.next;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  writer.join();
  std::printf(
      "10^8 puts beside a reader: %.1f ns a put, %llu read, %llu overrun, %llu torn, sum %s\n",
      write_seconds / kPuts * 1e9, static_cast<unsigned long long>(got),
      static_cast<unsigned long long>(lost), static_cast<unsigned long long>(bad),
      got + lost == kPuts ? "right" : "WRONG");
  std::filesystem::remove(path);
  return bad == 0 && got + lost == kPuts ? 0 : 1;
}
