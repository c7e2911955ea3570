#include "weft/comm/communicator.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "weft/base/hash.h"
#include "weft/comm/network_backend.h"
#include "weft/comm/segment.h"
#include "weft/comm/shared_backend.h"

namespace weft::comm {
namespace {

std::uint64_t steady_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        Deadline::Clock::now().time_since_epoch())
                                        .count());
}

std::uint64_t digest(std::span<const std::uint64_t> counts) {
  // Equal counts need no digest: the call's own count says it.
  if (std::ranges::all_of(counts, [&](std::uint64_t c) { return c == counts[0]; })) return 0;
  return xxh3_64(std::as_bytes(counts)) | 1;
}

Result<Work> reduction(CallKind kind, const void* in, void* out, std::uint64_t count, DType type,
                       ReduceOp op) {
  Work work;
  WEFT_ASSIGN(work.combine, combine_of(type, op));
  work.call.kind = kind;
  work.call.type = type;
  work.call.op = op;
  work.call.count = count;
  work.element = static_cast<std::size_t>(block_bytes(type));
  work.in = static_cast<const std::byte*>(in);
  work.out = static_cast<std::byte*>(out);
  return work;
}

Result<Work> movement(CallKind kind, const void* in, void* out, std::uint64_t count, DType type) {
  if (is_quantized(type)) {
    return fail(ErrorCode::kUnsupported, "{} of {}: send its blocks as U8", to_string(kind),
                to_string(type));
  }
  Work work;
  work.call.kind = kind;
  work.call.type = type;
  work.call.count = count;
  work.element = static_cast<std::size_t>(block_bytes(type));
  work.in = static_cast<const std::byte*>(in);
  work.out = static_cast<std::byte*>(out);
  return work;
}

}  // namespace

Result<std::uint32_t> GroupView::rank_of(MemberId member) const {
  const auto found = std::ranges::find(members, member);
  if (found == members.end()) {
    return fail(ErrorCode::kNotFound, "member {} is not in group {} epoch {}", member, id, epoch);
  }
  return static_cast<std::uint32_t>(found - members.begin());
}

// The thread of started work.
class Communicator::Engine {
 public:
  explicit Engine(Communicator& owner) : thread_([this, &owner] { loop(owner); }) {}
  ~Engine() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  std::future<Status> add(std::function<Status(Communicator&)> work) {
    std::packaged_task<Status(Communicator&)> task(std::move(work));
    std::future<Status> result = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(task));
    }
    wake_.notify_all();
    return result;
  }
  bool is_this_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  void drain() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return queue_.empty() && !busy_; });
  }

 private:
  void loop(Communicator& owner) {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      auto task = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      task(owner);
      lock.lock();
      busy_ = false;
      wake_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::packaged_task<Status(Communicator&)>> queue_;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the rest
};

Communicator::Communicator(GroupView view, std::uint32_t rank, std::unique_ptr<Backend> backend,
                           RingLane* trace)
    : view_(std::move(view)), rank_(rank), backend_(std::move(backend)), trace_(trace) {}
Communicator::~Communicator() = default;

Result<std::unique_ptr<Communicator>> Communicator::open(const GroupView& view, MemberId self,
                                                         Rendezvous& rendezvous,
                                                         const CommunicatorOptions& options,
                                                         Deadline deadline) {
  WEFT_ASSIGN(const std::uint32_t rank, view.rank_of(self));
  const auto ranks = static_cast<std::uint32_t>(view.members.size());
  std::unique_ptr<Backend> backend;
  if (options.shared_memory) {
    const std::string name = fmt::format("weft-{}-g{}-e{}", options.job, view.id, view.epoch);
    std::unique_ptr<Segment> segment;
    if (rank == 0) {
      WEFT_ASSIGN(segment, Segment::create(name, view.id, view.epoch, ranks));
    } else {
      WEFT_ASSIGN(segment, Segment::join(name, view.id, view.epoch, ranks, deadline));
    }
    const Status entered = segment->enter(rank, deadline);
    if (rank == 0) Segment::unlink(name);
    if (!entered) return std::unexpected(entered.error());
    backend = std::make_unique<SharedBackend>(std::move(segment), rank);
  } else {
    if (options.transport == nullptr) {
      return fail(ErrorCode::kInvalidArgument, "group {}: no transport and no shared memory",
                  view.id);
    }
    WEFT_ASSIGN(backend,
                NetworkBackend::open(view, rank, rendezvous, *options.transport, deadline));
  }
  return std::unique_ptr<Communicator>(
      new Communicator(view, rank, std::move(backend), options.trace));
}

Status Communicator::run(Work& work, Deadline deadline) {
  if (engine_ != nullptr && !engine_->is_this_thread()) engine_->drain();
  Algorithm used = Algorithm::kNone;
  if (trace_ == nullptr) return backend_->run(work, deadline, used);
  OpRecord record;
  record.group = view_.id;
  record.epoch = view_.epoch;
  record.operation = backend_->operation() + 1;
  record.rank = rank_;
  record.ranks = size();
  record.kind = work.call.kind;
  record.type = work.call.type;
  record.op = work.call.op;
  record.count = work.call.count;
  record.bytes = work.call.count * work.element;
  record.begin_ns = steady_ns();
  trace_->put(static_cast<std::uint32_t>(RecordKind::kOpBegin), record.begin_ns, record);
  const Status status = backend_->run(work, deadline, used);
  record.operation = backend_->operation();
  record.algorithm = used;
  record.ok = status ? 1 : 0;
  record.end_ns = steady_ns();
  trace_->put(static_cast<std::uint32_t>(RecordKind::kOpDone), record.end_ns, record);
  return status;
}

Result<std::uint64_t> Communicator::check_counts(std::span<const std::uint64_t> counts,
                                                 const char* what) const {
  if (counts.size() != size()) {
    return fail(ErrorCode::kInvalidArgument, "{}: {} counts for {} ranks; give one for each", what,
                counts.size(), size());
  }
  std::uint64_t total = 0;
  for (const std::uint64_t c : counts) {
    if (c > (std::uint64_t{1} << 48) || (total += c) > (std::uint64_t{1} << 48)) {
      return fail(ErrorCode::kOutOfRange, "{}: a count of {} is not possible", what, c);
    }
  }
  return total;
}

Status Communicator::barrier(Deadline deadline) {
  Work work;
  return run(work, deadline);
}

Status Communicator::all_reduce(const void* in, void* out, std::uint64_t count, DType type,
                                ReduceOp op, Deadline deadline) {
  WEFT_ASSIGN(Work work, reduction(CallKind::kAllReduce, in, out, count, type, op));
  return run(work, deadline);
}

Status Communicator::all_reduce_logical(std::span<const void* const> in, std::uint32_t first,
                                        std::uint32_t total, void* out, std::uint64_t count,
                                        DType type, ReduceOp op, Deadline deadline) {
  if (in.empty() || in.size() > 64) {
    return fail(ErrorCode::kInvalidArgument,
                "all_reduce_logical: {} logical ranks in one process; hold 1 to 64", in.size());
  }
  WEFT_ASSIGN(Work work, reduction(CallKind::kAllReduce, in[0], out, count, type, op));
  std::vector<const std::byte*> inputs;
  for (const void* input : in) inputs.push_back(static_cast<const std::byte*>(input));
  work.inputs = inputs;
  work.logical_first = first;
  work.logical_total = total;
  work.call.layout = std::uint64_t{total} << 1 | 1;
  return run(work, deadline);
}

Status Communicator::reduce(const void* in, void* out, std::uint64_t count, DType type, ReduceOp op,
                            std::uint32_t root, Deadline deadline) {
  WEFT_ASSIGN(Work work, reduction(CallKind::kReduce, in, out, count, type, op));
  if (root >= size()) {
    return fail(ErrorCode::kOutOfRange, "reduce: root {} of {} ranks", root, size());
  }
  work.call.root = root;
  return run(work, deadline);
}

Status Communicator::reduce_scatter(const void* in, void* out,
                                    std::span<const std::uint64_t> counts, DType type, ReduceOp op,
                                    Deadline deadline) {
  WEFT_ASSIGN(const std::uint64_t total, check_counts(counts, "reduce-scatter"));
  WEFT_ASSIGN(Work work, reduction(CallKind::kReduceScatter, in, out, total, type, op));
  work.counts = counts;
  work.call.layout = digest(counts);
  return run(work, deadline);
}

Status Communicator::all_gather(const void* in, void* out, std::span<const std::uint64_t> counts,
                                DType type, Deadline deadline) {
  WEFT_ASSIGN(const std::uint64_t total, check_counts(counts, "all-gather"));
  WEFT_ASSIGN(Work work, movement(CallKind::kAllGather, in, out, total, type));
  work.counts = counts;
  work.call.layout = digest(counts);
  return run(work, deadline);
}

Status Communicator::broadcast(void* data, std::uint64_t count, DType type, std::uint32_t root,
                               Deadline deadline) {
  WEFT_ASSIGN(Work work, movement(CallKind::kBroadcast, data, data, count, type));
  if (root >= size()) {
    return fail(ErrorCode::kOutOfRange, "broadcast: root {} of {} ranks", root, size());
  }
  work.call.root = root;
  return run(work, deadline);
}

Status Communicator::all_to_all(const void* in, void* out,
                                std::span<const std::uint64_t> send_counts,
                                std::span<const std::uint64_t> receive_counts, DType type,
                                Deadline deadline) {
  WEFT_TRY(check_counts(send_counts, "all-to-all"));
  WEFT_TRY(check_counts(receive_counts, "all-to-all"));
  // The counts differ between ranks and are checked pair by pair.
  WEFT_ASSIGN(Work work, movement(CallKind::kAllToAll, in, out, 0, type));
  work.counts = send_counts;
  work.receive_counts = receive_counts;
  return run(work, deadline);
}

std::future<Status> Communicator::start(std::function<Status(Communicator&)> work) {
  if (engine_ == nullptr) engine_ = std::make_unique<Engine>(*this);
  return engine_->add(std::move(work));
}

void Communicator::abort(std::uint32_t rank) {
  Verdict verdict;
  verdict.cause = Verdict::Cause::kFenced;
  verdict.rank = rank;
  verdict.operation = static_cast<std::uint32_t>(backend_->operation());
  backend_->abort(verdict);
}

}  // namespace weft::comm
