// share(): parallel_for for work of many milliseconds, cut finer than one piece a thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "weft/base/thread_pool.h"

namespace weft::nn {

// body(begin, end) over [0, n) in parts of at least `grain` items that threads take as they
// get free. On a shared machine one core can run at a third of the other's speed for
// seconds (its hyper-thread is busy elsewhere); with one piece a thread the slowest would
// set the pace.
template <class Body>
void share(ThreadPool& pool, std::int64_t n, std::int64_t grain, const Body& body) {
  constexpr std::int64_t kPartsPerThread = 8;
  if (n <= 0) return;
  const std::int64_t parts = std::clamp<std::int64_t>(n / std::max<std::int64_t>(grain, 1), 1,
                                                      pool.threads() * kPartsPerThread);
  std::atomic<std::int64_t> next{0};
  pool.parallel_for(std::min<std::int64_t>(parts, pool.threads()), 1,
                    [&](std::int64_t, std::int64_t) {
                      for (std::int64_t i = next++; i < parts; i = next++) {
                        body(n * i / parts, n * (i + 1) / parts);
                      }
                    });
}

}  // namespace weft::nn
