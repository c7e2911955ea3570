// The one pool of compute threads of a process. Threads sleep when idle.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace weft {

// parallel_for splits [0, n) into at most `threads()` contiguous pieces, the
// caller computing one of them. Work must not depend on how it is split. Calls
// from several threads take turns; a call from inside a piece runs inline.
class ThreadPool {
 public:
  // 0 threads means one for each core that this process may use.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // body(begin, end) for pieces of at least `grain` items.
  void parallel_for(std::int64_t n, std::int64_t grain,
                    const std::function<void(std::int64_t, std::int64_t)>& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
