// Collectives over the transport.
//
// Limit: for an all-reduce of S bytes a rank sends and receives at least
// 2 S (n-1)/n bytes (Rabenseifner's bound); blocks overlap sending, receiving and
// adding. A small operation costs one message latency.
//
// As over shared memory, each operation begins with an announcement from every rank to
// every other, with the call and up to 104 bytes of data; more data, up to 8 KiB,
// follows in a second message at once. Larger reductions are exchanged directly:
// each rank gets everybody's values of its part, combines them in the tree's order and
// sends the result, block by block.
#pragma once

#include <memory>
#include <vector>

#include "weft/comm/backend.h"
#include "weft/comm/communicator.h"
#include "weft/comm/pieces.h"
#include "weft/comm/transport.h"

namespace weft::comm {

// One thread at a time. The transport and the rendezvous must outlive it.
class NetworkBackend : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> open(const GroupView& view, std::uint32_t rank,
                                               Rendezvous& rendezvous, Transport& transport,
                                               Deadline deadline);
  Status run(const Work& work, Deadline deadline, Algorithm& used) override;
  std::uint64_t operation() const override { return sequence_; }
  void abort(const Verdict& verdict) override { (void)agree(verdict); }

 private:
  static constexpr std::size_t kNoticeBytes = 104;
  struct Notice {  // an announcement on the wire
    Call call;
    std::byte data[kNoticeBytes];
  };
  struct Pending {
    Ticket ticket;
    std::uint32_t rank;  // that it depends on
  };

  NetworkBackend(GroupView view, std::uint32_t rank, Rendezvous& rendezvous, Transport& transport);
  Status collective(const Work& work, Algorithm& used);
  Status announce(const Work& work, const std::byte* data, std::size_t bytes,
                  std::span<const std::size_t> expected = {});
  Status small_reduce(const Work& work);
  Status large_reduce(const Work& work);
  Status gather(const Work& work);
  Status broadcast(const Work& work);
  Status exchange(const Work& work);

  Status send(std::uint32_t to, std::uint32_t step, const std::byte* data, std::size_t bytes,
              std::vector<Pending>& into);
  Status receive(std::uint32_t from, std::uint32_t step, std::byte* data, std::size_t bytes,
                 std::vector<Pending>& into);
  // Waits for all; after an error (or with one in `result`) gives the rest up.
  Status finish(std::vector<Pending>& pending, Status result = {});
  // Ends the epoch with this verdict, or gives the one that came first.
  Verdict agree(const Verdict& verdict);

  GroupView view_;
  std::uint32_t rank_;
  std::uint32_t ranks_;
  Rendezvous& rendezvous_;
  Transport& transport_;
  std::uint64_t sequence_ = 0;
  Deadline deadline_ = Deadline::after(std::chrono::seconds(0));  // of the operation under way
  std::uint32_t blamed_ = 0;
  bool ended_ = false;
  std::vector<Notice> notices_;
  std::vector<std::vector<std::byte>> small_;  // second messages, by rank
  std::vector<std::byte> scratch_, staging_;
};

}  // namespace weft::comm
