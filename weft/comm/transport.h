// Transport: messages and one-sided copies between the members of a job, over UCX
// (shared memory, TCP, RDMA where the machine has it).
//
// One object per member and process. All functions may be called from any thread;
// one lock guards the UCX worker, and whoever waits drives progress. Every wait has
// a deadline. A member that died is an error at everyone who waits for it: at once
// when it ran on this machine (its process is watched), within `keepalive` x 3 of
// silence otherwise. An operation that had to be given up while UCX held its buffer
// fences the peer: the endpoint is closed, and later calls fail until `connect` is
// called with a newer incarnation.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "weft/base/deadline.h"
#include "weft/base/result.h"
#include "weft/comm/link_shaper.h"
#include "weft/comm/message.h"

namespace weft::comm {

struct TransportOptions {
  MemberId self = 0;
  std::uint64_t incarnation = 1;  // greater after each restart of this member
  // UCX transports: "shm,tcp" (default), "tcp", "shm" or UCX's own list. Messages to a
  // member on this machine then pass through shared memory, copied once more, since
  // a message that was given up must stay readable for UCX.
  std::string transports = "shm,tcp";
  // Shared by the members of a job. Without one, only loopback and shared memory
  // are used, so that nobody outside the machine can reach the job. With one, every
  // peer proves it before any of its data is looked at.
  std::string secret = {};
  std::string interface = {};  // network interface; empty: loopback without a secret, else all
  std::chrono::milliseconds keepalive{1000};
  std::size_t unexpected_bytes = std::size_t{256} << 20;  // held for receives not yet posted
};

struct Operation;  // private to the transport
struct TransportState;

// An operation under way. Copies refer to the same one. Its buffer must stay valid
// until `done` is true or the transport is destroyed.
class Ticket {
 public:
  Ticket() = default;
  bool valid() const { return operation_ != nullptr; }

 private:
  friend class Transport;
  explicit Ticket(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  std::shared_ptr<Operation> operation_;
};

// Memory that peers may read and write. Unregisters when destroyed; the bytes and
// the transport must outlive it.
class MemoryRegion {
 public:
  MemoryRegion(MemoryRegion&&) noexcept;
  MemoryRegion& operator=(MemoryRegion&&) noexcept;
  ~MemoryRegion();
  std::span<std::byte> bytes() const;
  // What a peer needs to name this memory; opaque, to be sent to it.
  std::string remote_key() const;

 private:
  friend class Transport;
  struct State;
  explicit MemoryRegion(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Counts since the start, for tests and metrics.
struct TransportCounters {
  std::uint64_t sent = 0, received = 0, sent_bytes = 0, received_bytes = 0;
  std::uint64_t endpoints_opened = 0;
  std::uint64_t stale = 0;      // refused: of an older epoch
  std::uint64_t duplicate = 0;  // refused: came before
  std::uint64_t stranger = 0;   // refused: no proof of the secret, or malformed
  std::uint64_t dropped = 0;    // by the link shaper
};

class Transport {
 public:
  // kUnavailable when UCX has none of the asked transports.
  static Result<std::unique_ptr<Transport>> create(const TransportOptions& options);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  MemberId self() const;
  // How others reach this member; opaque, a few hundred bytes.
  std::string address() const;

  // Opens the endpoint to a peer and, with a secret, shakes hands. At once when the
  // peer of this incarnation is open already. kInvalidArgument for a damaged
  // address; kUnavailable when the peer refuses or is of an older incarnation than
  // one already seen.
  Status connect(std::string_view address, Deadline deadline);
  bool connected(MemberId peer) const;
  // Closes the endpoint; operations with that peer fail with kCancelled.
  void disconnect(MemberId peer);

  // Starts sending `data`; the ticket is done when the buffer may be reused.
  Result<Ticket> post_send(MemberId peer, const MessageKey& key, std::span<const std::byte> data);
  // Starts receiving the message of `key` from key.source into `data`. A message of
  // another length fails the ticket with kInvalidArgument.
  Result<Ticket> post_receive(const MessageKey& key, std::span<std::byte> data);
  // Ends when the ticket does, with its result, or at the deadline, having given it up.
  Status wait(const Ticket& ticket, Deadline deadline);
  // Drives progress without waiting; nothing if the ticket is still under way.
  std::optional<Status> test(const Ticket& ticket);
  // Gives the operation up: kCancelled, unless it was done.
  void cancel(const Ticket& ticket);
  // Drives progress for a moment, without blocking; true if anything happened.
  bool progress();

  Result<MemoryRegion> register_memory(std::span<std::byte> bytes);
  // One-sided copies into and out of a peer's registered memory, `offset` bytes into
  // the region. Done when the bytes are there.
  Result<Ticket> post_put(MemberId peer, std::span<const std::byte> from,
                          std::string_view remote_key, std::size_t offset);
  Result<Ticket> post_get(MemberId peer, std::span<std::byte> to, std::string_view remote_key,
                          std::size_t offset);

  // Messages of `group` older than `epoch` are refused from now on; receives posted
  // for older ones fail with kCancelled.
  void set_epoch(std::uint64_t group, std::uint32_t epoch);
  // Called, with the lock not held, when a peer says that an epoch of a group ended;
  // set_epoch(group, epoch + 1) was done then.
  using AbortHandler =
      std::function<void(std::uint64_t group, std::uint32_t epoch, std::string_view verdict)>;
  void on_abort(AbortHandler handler);
  // Tells a peer that an epoch ended; best effort, does not wait.
  void send_abort(MemberId peer, std::uint64_t group, std::uint32_t epoch,
                  std::string_view verdict);

  // Shapes what this member sends to `peer` from now on.
  void shape(MemberId peer, const LinkShape& shape);

  TransportCounters counters() const;

 private:
  explicit Transport(std::unique_ptr<TransportState> state);
  std::unique_ptr<TransportState> state_;
};

}  // namespace weft::comm
