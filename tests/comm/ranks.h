// Runs a function on n ranks, as threads of this process, over either backend.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/comm/transport.h"

namespace weft::comm {

enum class Path { kShared, kNetwork };

inline std::string fresh_job() {
  static std::atomic<int> serial{0};
  return fmt::format("test-{}-{}", ::getpid(), serial.fetch_add(1));
}

inline Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

inline void on_ranks(Path path, std::uint32_t n, const std::function<void(Communicator&)>& body,
                     std::vector<RingLane*> lanes = {}) {
  MemoryRendezvous rendezvous;
  GroupView view{.id = 7, .epoch = 1, .members = {}};
  for (std::uint32_t r = 0; r < n; ++r) view.members.push_back(100 + r);
  const std::string job = fresh_job();
  std::vector<std::unique_ptr<Transport>> transports(n);
  std::vector<std::unique_ptr<Communicator>> communicators(n);
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      CommunicatorOptions options;
      options.job = job;
      options.shared_memory = path == Path::kShared;
      if (!lanes.empty()) options.trace = lanes[r];
      if (path == Path::kNetwork) {
        TransportOptions transport;
        transport.self = view.members[r];
        transport.transports = "tcp";
        transports[r] = *Transport::create(transport);
        options.transport = transports[r].get();
      }
      auto communicator = Communicator::open(view, view.members[r], rendezvous, options, soon());
      ASSERT_TRUE(communicator) << communicator.error().message;
      communicators[r] = std::move(*communicator);
      body(*communicators[r]);
    });
  }
  for (auto& thread : threads) thread.join();
  communicators.clear();
}

}  // namespace weft::comm
