// Communicator: the collectives of one member in one epoch of a group.
//
// All ranks make the same calls in the same order. A call whose kind, type, count,
// root or operation differs between ranks gives every rank the same
// kInvalidArgument, naming the call and the odd rank, with outputs untouched, and the
// group goes on. A dead or missing rank ends the epoch: every survivor gets the same
// verdict from the operation under way and from all later ones, until the group is
// edited (group.h). An operation before the one in the verdict is complete everywhere.
//
// Sums of more than two values are taken in the canonical tree (reduce.h) over ranks,
// or over logical ranks with all_reduce_logical, by every algorithm: the bits depend on
// the logical indices alone.
//
// Counts are in elements. Vectors may be of any length, 0 too; `in` may equal `out`
// (for a gather: the own part of `out`; for a reduce-scatter: not). One thread at a time,
// except `start`ed work, which runs in order on a thread of the communicator's own.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/base/deadline.h"
#include "weft/base/dtype.h"
#include "weft/base/result.h"
#include "weft/base/ring.h"
#include "weft/comm/call.h"
#include "weft/comm/message.h"
#include "weft/comm/rendezvous.h"

namespace weft::comm {

class Transport;

// One epoch of a group: its ranks are the places in `members`.
struct GroupView {
  std::uint64_t id = 0;
  std::uint32_t epoch = 1;
  std::vector<MemberId> members;
  // The rank of a member, or kNotFound.
  Result<std::uint32_t> rank_of(MemberId member) const;
};

struct CommunicatorOptions {
  std::string job = "job";         // names shared memory; letters, digits, '-', '_', '.'
  Transport* transport = nullptr;  // needed unless all members share this machine's memory
  bool shared_memory = true;       // false: over the transport even on one machine
  RingLane* trace = nullptr;       // records of every operation go here; may be null
};

class Backend;
struct Work;

class Communicator {
 public:
  // All members of the view call it. kDeadlineExceeded names a member that did not come.
  static Result<std::unique_ptr<Communicator>> open(const GroupView& view, MemberId self,
                                                    Rendezvous& rendezvous,
                                                    const CommunicatorOptions& options,
                                                    Deadline deadline);
  ~Communicator();

  const GroupView& view() const { return view_; }
  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(view_.members.size()); }

  Status barrier(Deadline deadline);
  Status all_reduce(const void* in, void* out, std::uint64_t count, DType type, ReduceOp op,
                    Deadline deadline);
  // The inputs of the logical ranks first, first + 1, ... of `total` that this rank
  // holds (1 to 64); the ranks' ranges follow each other. The result has the same bits
  // for every such split.
  Status all_reduce_logical(std::span<const void* const> in, std::uint32_t first,
                            std::uint32_t total, void* out, std::uint64_t count, DType type,
                            ReduceOp op, Deadline deadline);
  Status reduce(const void* in, void* out, std::uint64_t count, DType type, ReduceOp op,
                std::uint32_t root, Deadline deadline);
  // in: the whole vector, counts[r] elements for rank r; out: counts[rank()].
  Status reduce_scatter(const void* in, void* out, std::span<const std::uint64_t> counts,
                        DType type, ReduceOp op, Deadline deadline);
  // in: counts[rank()] elements; out: all ranks' parts in order.
  Status all_gather(const void* in, void* out, std::span<const std::uint64_t> counts, DType type,
                    Deadline deadline);
  Status broadcast(void* data, std::uint64_t count, DType type, std::uint32_t root,
                   Deadline deadline);
  // in: send_counts[r] elements for rank r; out: receive_counts[r] from rank r. Not in place.
  Status all_to_all(const void* in, void* out, std::span<const std::uint64_t> send_counts,
                    std::span<const std::uint64_t> receive_counts, DType type, Deadline deadline);

  // Runs `work` (calls of this object) after what was started before it, on another
  // thread. Blocking calls wait for started work first.
  std::future<Status> start(std::function<Status(Communicator&)> work);

  // Ends the epoch for everybody, blaming `rank`.
  void abort(std::uint32_t rank);

 private:
  class Engine;
  Communicator(GroupView view, std::uint32_t rank, std::unique_ptr<Backend> backend,
               RingLane* trace);
  Status run(Work& work, Deadline deadline);
  Result<std::uint64_t> check_counts(std::span<const std::uint64_t> counts, const char* what) const;

  GroupView view_;
  std::uint32_t rank_;
  std::unique_ptr<Backend> backend_;
  RingLane* trace_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace weft::comm
