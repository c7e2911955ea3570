// Messages and one-sided copies: matching, epochs, duplicates, handing to UCX.
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>

#include "weft/comm/transport_state.h"

namespace weft::comm {
namespace {

constexpr unsigned kMessageId = 1;

// "group 12 epoch 3 operation 7 step 2"
std::string name_of(const MessageKey& key) {
  return fmt::format("group {} epoch {} operation {} step {}", key.group, key.epoch, key.op,
                     key.step);
}

Error why_of(const Peer* peer, MemberId member) {
  if (peer == nullptr) {
    return {ErrorCode::kUnavailable, fmt::format("member {} is not connected", member)};
  }
  if (peer->state == Peer::State::kDead) return peer->why;
  return {ErrorCode::kUnavailable, fmt::format("the handshake with member {} is not over", member)};
}

// UCX is done with one part of an operation.
void part_done(TransportState& state, Operation& operation, ucs_status_t status) {
  --operation.parts;
  Status result;
  if (status != UCS_OK) {
    const Peer* peer = state.find(operation.peer);
    result = peer != nullptr && peer->state == Peer::State::kDead
                 ? std::unexpected(peer->why)
                 : fail(ErrorCode::kUnavailable, "member {} cannot be reached: {}", operation.peer,
                        ucs_status_string(status));
  }
  const bool abandoned = operation.done.load(std::memory_order_relaxed);
  if (!abandoned && !result && operation.result) operation.result = result;
  if (operation.parts > 0) return;
  const auto keep = std::move(operation.self);
  if (Peer* peer = state.find(operation.peer)) peer->in_flight.erase(keep);
  if (operation.rkey != nullptr) {
    ucp_rkey_destroy(operation.rkey);
    operation.rkey = nullptr;
  }
  if (!abandoned) state.complete(operation, operation.result);
}

// The transport of an operation that UCX holds: user_data has room for one pointer.
struct Pending {
  TransportState* state;
  std::shared_ptr<Operation> operation;
};

void on_sent(void* request, ucs_status_t status, void* user) {
  auto* pending = static_cast<Pending*>(user);
  part_done(*pending->state, *pending->operation, status);
  delete pending;
  ucp_request_free(request);
}

void on_received(void* request, ucs_status_t status, std::size_t, void* user) {
  on_sent(request, status, user);
}

}  // namespace

void TransportState::complete(Operation& operation, Status result) {
  if (operation.done.load(std::memory_order_relaxed)) return;
  operation.result = std::move(result);
  operation.done.store(true, std::memory_order_release);
  if (waiters.load(std::memory_order_relaxed) > 1) {
    const std::uint64_t one = 1;
    (void)!::write(wake, &one, sizeof(one));
  }
}

void TransportState::track(const std::shared_ptr<Operation>& operation, void* request) {
  if (UCS_PTR_IS_PTR(request)) return;  // the callback ends it
  part_done(*this, *operation, UCS_PTR_RAW_STATUS(request));
}

void TransportState::hand_to_ucx(const std::shared_ptr<Operation>& operation, Peer& peer,
                                 int copies) {
  operation->parts += copies;
  operation->self = operation;
  if (peer.shared_memory) {
    if (operation->owned.empty()) {
      operation->owned.assign(reinterpret_cast<const char*>(operation->from), operation->size);
      operation->from = reinterpret_cast<const std::byte*>(operation->owned.data());
    }
    peer.in_flight.insert(operation);
  }
  for (int copy = 0; copy < copies; ++copy) {
    auto* pending = new Pending{this, operation};
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = on_sent;
    param.user_data = pending;
    void* request =
        ucp_am_send_nbx(peer.endpoint, kMessageId, &operation->header, sizeof(operation->header),
                        operation->from, operation->size, &param);
    if (!UCS_PTR_IS_PTR(request)) delete pending;
    track(operation, request);
  }
}

void TransportState::send(const std::shared_ptr<Operation>& operation, Peer& peer) {
  if (!peer.shaper.shape().shapes()) {
    hand_to_ucx(operation, peer, 1);
    return;
  }
  const auto bytes = static_cast<std::int64_t>(operation->size + sizeof(WireHeader));
  const Passage passage = peer.shaper.admit(now_ns(), bytes);
  if (passage.copies == 0) {
    ++counters.dropped;
    complete(*operation, {});
    return;
  }
  held.emplace(passage.release_ns, Held{operation, passage.copies, passage.held});
}

void TransportState::release_held(std::int64_t now) {
  while (!held.empty() && held.begin()->first <= now) {
    const Held item = held.begin()->second;
    held.erase(held.begin());
    Peer* peer = find(item.operation->peer);
    if (peer == nullptr || peer->state == Peer::State::kDead) {
      complete(*item.operation, std::unexpected(why_of(peer, item.operation->peer)));
    } else {
      hand_to_ucx(item.operation, *peer, item.copies);
    }
  }
}

Result<Ticket> Transport::post_send(MemberId member, const MessageKey& key,
                                    std::span<const std::byte> data) {
  TransportState& s = *state_;
  const std::lock_guard lock(s.mutex);
  Peer* peer = s.find(member);
  if (peer == nullptr || peer->state != Peer::State::kOpen) {
    return std::unexpected(why_of(peer, member));
  }
  auto operation = std::make_shared<Operation>();
  operation->peer = member;
  operation->key = key;
  operation->from = data.data();
  operation->size = data.size();
  operation->header = {.session = peer->session,
                       .group = key.group,
                       .serial = peer->next_serial++,
                       .epoch = key.epoch,
                       .op = key.op,
                       .step = key.step,
                       .source = s.options.self};
  ++s.counters.sent;
  s.counters.sent_bytes += data.size();
  s.send(operation, *peer);
  return Ticket(std::move(operation));
}

Result<Ticket> Transport::post_receive(const MessageKey& key, std::span<std::byte> data) {
  TransportState& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (const auto epoch = s.epochs.find(key.group);
      epoch != s.epochs.end() && key.epoch < epoch->second) {
    return fail(ErrorCode::kCancelled, "{}: the epoch is over; it is {} now", name_of(key),
                epoch->second);
  }
  auto operation = std::make_shared<Operation>();
  operation->kind = Operation::Kind::kReceive;
  operation->peer = key.source;
  operation->key = key;
  operation->to = data.data();
  operation->size = data.size();
  const auto early = s.unexpected.find(key);
  if (early == s.unexpected.end()) {
    const Peer* peer = s.find(key.source);
    if (peer != nullptr && peer->state == Peer::State::kDead) return std::unexpected(peer->why);
    if (!s.posted.emplace(key, operation).second) {
      return fail(ErrorCode::kInvalidArgument, "{} from member {}: a receive is posted already",
                  name_of(key), key.source);
    }
    return Ticket(std::move(operation));
  }
  Unexpected message = std::move(early->second);
  s.unexpected.erase(early);
  s.unexpected_bytes -= message.rendezvous ? 0 : message.size;
  if (message.size != data.size()) {
    s.drop(message);
    s.complete(*operation, fail(ErrorCode::kInvalidArgument,
                                "{}: member {} sent {} bytes where {} were expected", name_of(key),
                                key.source, message.size, data.size()));
  } else if (message.rendezvous) {
    s.start_rendezvous(operation, message.descriptor);
  } else {
    const void* bytes = message.descriptor != nullptr ? message.descriptor : message.copy.data();
    if (message.size > 0) std::memcpy(operation->to, bytes, message.size);
    s.drop(message);
    s.complete(*operation, {});
  }
  return Ticket(std::move(operation));
}

void TransportState::start_rendezvous(const std::shared_ptr<Operation>& operation,
                                      void* descriptor) {
  auto* pending = new Pending{this, operation};
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = on_received;
  param.user_data = pending;
  operation->parts = 1;
  operation->self = operation;
  void* request = ucp_am_recv_data_nbx(worker, descriptor, operation->to, operation->size, &param);
  if (!UCS_PTR_IS_PTR(request)) delete pending;
  track(operation, request);
}

void TransportState::drop(Unexpected& message) {
  if (message.descriptor != nullptr) ucp_am_data_release(worker, message.descriptor);
  message.descriptor = nullptr;
}

bool TransportState::take_serial(Peer& peer, std::uint64_t serial) {
  if (serial <= peer.seen_up_to || peer.seen_after.contains(serial)) return false;
  if (serial != peer.seen_up_to + 1) {
    peer.seen_after.insert(serial);
    // Dropped messages leave holes; a hole this far back is closed.
    if (peer.seen_after.size() > 4096) peer.seen_up_to = *peer.seen_after.begin() - 1;
  } else {
    peer.seen_up_to = serial;
  }
  while (!peer.seen_after.empty() && *peer.seen_after.begin() == peer.seen_up_to + 1) {
    peer.seen_up_to = *peer.seen_after.begin();
    peer.seen_after.erase(peer.seen_after.begin());
  }
  return true;
}

ucs_status_t TransportState::arrive(const WireHeader& header, void* data, std::size_t size,
                                    bool rendezvous, bool keepable) {
  if (header.magic != kWireMagic) {
    ++counters.stranger;
    return UCS_OK;
  }
  if (header.kind != MessageKind::kData && header.kind != MessageKind::kAbort) {
    // Handshakes need endpoints, which a callback must not open.
    if (rendezvous || size > 4096 || control_in.size() > 1024) {
      ++counters.stranger;
      return UCS_OK;
    }
    std::string text(1, static_cast<char>(header.kind));
    text.append(static_cast<const char*>(data), size);
    control_in.emplace_back(header.source, std::move(text));
    return UCS_OK;
  }
  Peer* peer = find(header.source);
  const bool proven =
      options.secret.empty() ||
      (peer != nullptr && peer->state == Peer::State::kOpen && peer->session == header.session);
  if (!proven) {
    ++counters.stranger;
    return UCS_OK;
  }
  if (header.kind == MessageKind::kAbort) {
    if (!rendezvous) {
      aborts.push_back(
          {header.group, header.epoch, std::string(static_cast<const char*>(data), size)});
    }
    return UCS_OK;
  }
  if (peer != nullptr && !take_serial(*peer, header.serial)) {
    ++counters.duplicate;
    return UCS_OK;
  }
  if (const auto epoch = epochs.find(header.group);
      epoch != epochs.end() && header.epoch < epoch->second) {
    ++counters.stale;
    return UCS_OK;
  }
  const MessageKey key{header.group, header.epoch, header.op, header.step, header.source};
  ++counters.received;
  counters.received_bytes += size;
  const auto waiting = posted.find(key);
  if (waiting == posted.end()) {
    if (unexpected.contains(key)) {  // before the sender was known
      ++counters.duplicate;
      return UCS_OK;
    }
    if (!rendezvous && unexpected_bytes + size > options.unexpected_bytes) {
      if (peer != nullptr) {
        broken.emplace_back(peer->endpoint,
                            Error{ErrorCode::kResourceExhausted,
                                  "it sends more than is received; raise unexpected_bytes"});
      }
      return UCS_OK;
    }
    Unexpected message;
    message.size = size;
    message.rendezvous = rendezvous;
    if (rendezvous || keepable) {
      message.descriptor = data;
    } else {
      const auto* bytes = static_cast<const std::byte*>(data);
      message.copy.assign(bytes, bytes + size);
    }
    unexpected_bytes += rendezvous ? 0 : size;
    const bool keep = message.descriptor != nullptr;
    unexpected.emplace(key, std::move(message));
    return keep ? UCS_INPROGRESS : UCS_OK;
  }
  const std::shared_ptr<Operation> operation = waiting->second;
  posted.erase(waiting);
  if (size != operation->size) {
    complete(*operation,
             fail(ErrorCode::kInvalidArgument, "{}: member {} sent {} bytes where {} were expected",
                  name_of(key), key.source, size, operation->size));
    return UCS_OK;
  }
  if (rendezvous) {
    operation->parts = 1;  // giving it up from here on means closing the endpoint
    rendezvous_ready.emplace_back(operation, data);
    return UCS_INPROGRESS;
  }
  if (size > 0) std::memcpy(operation->to, data, size);
  complete(*operation, {});
  return UCS_OK;
}

void TransportState::give_up(const std::shared_ptr<Operation>& operation, Error why) {
  if (operation->done.load(std::memory_order_acquire)) return;
  const bool late = why.code == ErrorCode::kDeadlineExceeded;
  const auto sentence = [&](std::string_view what) {
    why.message = fmt::format("{} {} member {} {}", name_of(operation->key), what, operation->peer,
                              late ? "did not end before its deadline" : "was cancelled");
  };
  if (operation->kind == Operation::Kind::kReceive && operation->parts == 0) {
    posted.erase(operation->key);
    sentence("from");
    complete(*operation, std::unexpected(why));
    return;
  }
  sentence(operation->kind == Operation::Kind::kSend ? "to" : "with");
  for (auto it = held.begin(); it != held.end(); ++it) {
    if (it->second.operation != operation) continue;
    held.erase(it);
    complete(*operation, std::unexpected(why));
    return;
  }
  // UCX holds the buffer: only closing the endpoint gives it back.
  operation->result = std::unexpected(why);
  if (Peer* peer = find(operation->peer)) {
    if (peer->shared_memory) {
      peer->in_flight.erase(operation);
      complete(*operation, std::unexpected(why));
    }
    fail_peer(*peer, {ErrorCode::kUnavailable,
                      fmt::format("member {} is fenced: an operation with it was given up ({})",
                                  operation->peer, why.message)});
  }
}

void TransportState::end_epochs_before(std::uint64_t group, std::uint32_t epoch) {
  std::uint32_t& now = epochs[group];
  if (epoch <= now) return;
  now = epoch;
  const Error over{ErrorCode::kCancelled,
                   fmt::format("group {}: the epoch is over; it is {} now", group, epoch)};
  std::vector<std::shared_ptr<Operation>> ended;
  std::erase_if(posted, [&](const auto& item) {
    const bool old = item.first.group == group && item.first.epoch < epoch;
    if (old) ended.push_back(item.second);
    return old;
  });
  for (const auto& operation : ended) complete(*operation, std::unexpected(over));
  for (auto it = unexpected.begin(); it != unexpected.end();) {
    if (it->first.group != group || it->first.epoch >= epoch) {
      ++it;
      continue;
    }
    unexpected_bytes -= it->second.rendezvous ? 0 : it->second.size;
    drop(it->second);
    ++counters.stale;
    it = unexpected.erase(it);
  }
}

void Transport::set_epoch(std::uint64_t group, std::uint32_t epoch) {
  const std::lock_guard lock(state_->mutex);
  state_->end_epochs_before(group, epoch);
}

void Transport::send_abort(MemberId member, std::uint64_t group, std::uint32_t epoch,
                           std::string_view verdict) {
  TransportState& s = *state_;
  const std::lock_guard lock(s.mutex);
  Peer* peer = s.find(member);
  if (peer == nullptr || peer->state != Peer::State::kOpen) return;
  auto operation = std::make_shared<Operation>();
  operation->peer = member;
  operation->owned = verdict;
  operation->from = reinterpret_cast<const std::byte*>(operation->owned.data());
  operation->size = operation->owned.size();
  operation->header.kind = MessageKind::kAbort;
  operation->header.session = peer->session;
  operation->header.group = group;
  operation->header.epoch = epoch;
  operation->header.source = s.options.self;
  s.send(operation, *peer);
}

struct MemoryRegionHead {
  std::uint64_t base = 0;
  std::uint64_t size = 0;
};

Result<MemoryRegion> Transport::register_memory(std::span<std::byte> bytes) {
  TransportState& s = *state_;
  const std::lock_guard lock(s.mutex);
  auto region = std::make_unique<MemoryRegion::State>();
  region->transport = &s;
  region->bytes = bytes;
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = bytes.data();
  params.length = bytes.size();
  auto status = ucp_mem_map(s.context, &params, &region->memory);
  if (status != UCS_OK) {
    return fail(ErrorCode::kResourceExhausted, "cannot register {} bytes: UCX says: {}",
                bytes.size(), ucs_status_string(status));
  }
  void* key = nullptr;
  std::size_t key_size = 0;
  status = ucp_rkey_pack(s.context, region->memory, &key, &key_size);
  if (status != UCS_OK) {
    ucp_mem_unmap(s.context, region->memory);
    return fail(ErrorCode::kIo, "cannot name {} registered bytes: UCX says: {}", bytes.size(),
                ucs_status_string(status));
  }
  const MemoryRegionHead head{reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size()};
  region->key.assign(reinterpret_cast<const char*>(&head), sizeof(head));
  region->key.append(static_cast<const char*>(key), key_size);
  ucp_rkey_buffer_release(key);
  return MemoryRegion(std::move(region));
}

MemoryRegion::MemoryRegion(std::unique_ptr<State> state) : state_(std::move(state)) {}
MemoryRegion::MemoryRegion(MemoryRegion&&) noexcept = default;
MemoryRegion& MemoryRegion::operator=(MemoryRegion&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}
MemoryRegion::~MemoryRegion() {
  if (state_ == nullptr) return;
  const std::lock_guard lock(state_->transport->mutex);
  ucp_mem_unmap(state_->transport->context, state_->memory);
}
std::span<std::byte> MemoryRegion::bytes() const { return state_->bytes; }
std::string MemoryRegion::remote_key() const { return state_->key; }

namespace {

// Opens the remote key and starts `begin`, then a flush whose end is the ticket's.
template <class Begin>
Result<std::shared_ptr<Operation>> one_sided(TransportState& s, MemberId member, std::size_t bytes,
                                             std::string_view key, std::size_t offset,
                                             Begin begin) {
  Peer* peer = s.find(member);
  if (peer == nullptr || peer->state != Peer::State::kOpen) {
    return std::unexpected(why_of(peer, member));
  }
  MemoryRegionHead head;
  if (key.size() <= sizeof(head)) {
    return fail(ErrorCode::kInvalidArgument, "{} bytes are not a remote key", key.size());
  }
  std::memcpy(&head, key.data(), sizeof(head));
  if (offset > head.size || bytes > head.size - offset) {
    return fail(ErrorCode::kOutOfRange,
                "{} bytes at {} reach beyond the {} bytes that member {} registered", bytes, offset,
                head.size, member);
  }
  auto operation = std::make_shared<Operation>();
  operation->kind = Operation::Kind::kOneSided;
  operation->peer = member;
  operation->size = bytes;
  const auto status =
      ucp_ep_rkey_unpack(peer->endpoint, key.data() + sizeof(head), &operation->rkey);
  if (status != UCS_OK) {
    return fail(ErrorCode::kInvalidArgument, "member {}: the remote key is damaged: {}", member,
                ucs_status_string(status));
  }
  operation->self = operation;
  operation->parts = 2;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = on_sent;
  auto* pending = new Pending{&s, operation};
  param.user_data = pending;
  void* request = begin(peer->endpoint, head.base + offset, operation->rkey, &param);
  if (!UCS_PTR_IS_PTR(request)) delete pending;
  s.track(operation, request);
  pending = new Pending{&s, operation};
  param.user_data = pending;
  request = ucp_ep_flush_nbx(peer->endpoint, &param);
  if (!UCS_PTR_IS_PTR(request)) delete pending;
  s.track(operation, request);
  return operation;
}

}  // namespace

Result<Ticket> Transport::post_put(MemberId member, std::span<const std::byte> from,
                                   std::string_view key, std::size_t offset) {
  const std::lock_guard lock(state_->mutex);
  auto operation =
      one_sided(*state_, member, from.size(), key, offset,
                [&](ucp_ep_h endpoint, std::uint64_t address, ucp_rkey_h rkey,
                    const ucp_request_param_t* param) {
                  return ucp_put_nbx(endpoint, from.data(), from.size(), address, rkey, param);
                });
  if (!operation) return std::unexpected(operation.error());
  return Ticket(std::move(*operation));
}

Result<Ticket> Transport::post_get(MemberId member, std::span<std::byte> to, std::string_view key,
                                   std::size_t offset) {
  const std::lock_guard lock(state_->mutex);
  auto operation =
      one_sided(*state_, member, to.size(), key, offset,
                [&](ucp_ep_h endpoint, std::uint64_t address, ucp_rkey_h rkey,
                    const ucp_request_param_t* param) {
                  return ucp_get_nbx(endpoint, to.data(), to.size(), address, rkey, param);
                });
  if (!operation) return std::unexpected(operation.error());
  return Ticket(std::move(*operation));
}

}  // namespace weft::comm
