// The inside of Transport: peers, operations under way, what UCX holds. Private to
// the transport's own files. Everything here is guarded by TransportState::mutex.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/comm/handshake.h"
#include "weft/comm/member_address.h"
#include "weft/comm/transport.h"

namespace weft::comm {

struct Operation : std::enable_shared_from_this<Operation> {
  enum class Kind { kSend, kReceive, kOneSided };
  Kind kind = Kind::kSend;
  MemberId peer = 0;
  MessageKey key;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t size = 0;
  WireHeader header;                // UCX reads it until the send is complete
  std::string owned;                // bytes of control messages
  int parts = 0;                    // pieces that UCX still holds
  ucp_rkey_h rkey = nullptr;        // of a one-sided copy
  std::shared_ptr<Operation> self;  // keeps the operation while UCX holds it
  std::atomic<bool> done{false};
  Status result;
};

struct Peer {
  enum class State { kShaking, kOpen, kDead };
  State state = State::kShaking;
  MemberAddress address;
  ucp_ep_h endpoint = nullptr;
  // UCX's shared memory knows no failed peers: its endpoints cannot be torn down, so
  // what is sent over one is copied first and what is given up stays with UCX.
  bool shared_memory = false;
  std::set<std::shared_ptr<Operation>> in_flight;  // over shared memory only
  int pidfd = -1;
  Error why;           // when dead
  bool first = false;  // this side said hello
  HandshakeTerms terms;
  std::uint64_t session = 0;
  std::uint64_t next_serial = 1;
  std::uint64_t seen_up_to = 0;        // every serial up to this one came
  std::set<std::uint64_t> seen_after;  // and these beyond it
  LinkShaper shaper;
};

// A message that came before its receive was posted.
struct Unexpected {
  void* descriptor = nullptr;  // held in UCX
  bool rendezvous = false;
  std::size_t size = 0;
  std::vector<std::byte> copy;  // otherwise
};

struct Held {  // by the link shaper
  std::shared_ptr<Operation> operation;
  int copies = 1;
  bool cut = false;
};

struct AbortNews {
  std::uint64_t group = 0;
  std::uint32_t epoch = 0;
  std::string verdict;
};

struct TransportState {
  ~TransportState();

  TransportOptions options;
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  std::string ucx_address;
  std::string own_address;
  int epoll = -1;
  int wake = -1;

  std::mutex mutex;
  std::atomic<int> waiters{0};
  std::unordered_map<MemberId, std::unique_ptr<Peer>> peers;
  std::map<MemberId, LinkShape> shapes;
  std::unordered_map<MessageKey, std::shared_ptr<Operation>, MessageKeyHash> posted;
  std::unordered_map<MessageKey, Unexpected, MessageKeyHash> unexpected;
  std::size_t unexpected_bytes = 0;
  std::unordered_map<std::uint64_t, std::uint32_t> epochs;
  std::multimap<std::int64_t, Held> held;
  // Left for after ucp_worker_progress, as UCX forbids them inside its callbacks.
  std::vector<std::pair<std::shared_ptr<Operation>, void*>> rendezvous_ready;
  std::vector<std::pair<ucp_ep_h, Error>> broken;
  std::vector<std::pair<MemberId, std::string>> control_in;  // kind byte, payload
  std::vector<void*> closing;
  std::vector<AbortNews> aborts;
  Transport::AbortHandler abort_handler;
  TransportCounters counters;

  // One round: UCX, held messages, what callbacks left behind. True if anything moved.
  bool progress_locked();
  void run_abort_handlers();
  void block(Deadline deadline);

  Peer* find(MemberId member);
  Status open(const MemberAddress& address);
  void fail_peer(Peer& peer, Error why);
  void forget_operations(MemberId member, const Error& why);

  void complete(Operation& operation, Status result);
  void hand_to_ucx(const std::shared_ptr<Operation>& operation, Peer& peer, int copies);
  void start_rendezvous(const std::shared_ptr<Operation>& operation, void* descriptor);
  void track(const std::shared_ptr<Operation>& operation, void* request);
  void give_up(const std::shared_ptr<Operation>& operation, Error why);
  void send(const std::shared_ptr<Operation>& operation, Peer& peer);
  void release_held(std::int64_t now_ns);

  // What the active-message callback does; gives UCS_INPROGRESS to keep `data`.
  ucs_status_t arrive(const WireHeader& header, void* data, std::size_t size, bool rendezvous,
                      bool keepable);
  bool take_serial(Peer& peer, std::uint64_t serial);
  void drop(Unexpected& message);
  void end_epochs_before(std::uint64_t group, std::uint32_t epoch);

  void send_control(Peer& peer, MessageKind kind, std::string payload);
  void on_control(MessageKind kind, MemberId source, std::string_view payload);
  void say_hello(Peer& peer);
};

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             Deadline::Clock::now().time_since_epoch())
      .count();
}

struct MemoryRegion::State {
  TransportState* transport = nullptr;
  ucp_mem_h memory = nullptr;
  std::span<std::byte> bytes;
  std::string key;
};

}  // namespace weft::comm
