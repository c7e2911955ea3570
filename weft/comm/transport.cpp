// The public face: options, endpoints, waiting. Messages are in
// transport_messages.cpp.
#include "weft/comm/transport.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "weft/comm/transport_state.h"

namespace weft::comm {
namespace {

constexpr unsigned kMessageId = 1;
// Rounds without news before a waiter lets others run, and before it sleeps. A round
// over TCP is a system call of a third of a microsecond; a sleep and a wake-up cost
// about five.
constexpr int kRoundsBeforeYield = 8;
constexpr int kRoundsBeforeSleep = 64;

Status ucx_failed(std::string_view what, ucs_status_t status) {
  const ErrorCode code = status == UCS_ERR_NO_MEMORY ? ErrorCode::kResourceExhausted
                         : status == UCS_ERR_NO_DEVICE || status == UCS_ERR_UNREACHABLE
                             ? ErrorCode::kUnavailable
                             : ErrorCode::kIo;
  return fail(code, "cannot {}: UCX says: {}{}", what, ucs_status_string(status),
              status == UCS_ERR_NO_DEVICE
                  ? "; the network interface must be up and listed in /sys/class/net"
                  : "");
}

Result<ucp_config_t*> configure(const TransportOptions& options) {
  ucp_config_t* config = nullptr;
  if (const auto status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK) {
    return std::unexpected(ucx_failed("read UCX's configuration", status).error());
  }
  std::string transports = options.transports;
  if (transports == "shm,tcp") transports = "posix,sysv,cma,self,tcp";
  if (transports == "tcp") transports = "tcp";
  if (transports == "shm") transports = "posix,sysv,cma,self";
  std::string devices = options.interface;
  if (devices.empty()) devices = options.secret.empty() ? "lo" : "all";
  const auto seconds = std::chrono::duration<double>(options.keepalive).count();
  const std::pair<const char*, std::string> settings[] = {
      {"TLS", transports},
      {"NET_DEVICES", devices},
      {"KEEPALIVE_INTERVAL", fmt::format("{:.3f}s", seconds)},
      // Signals of the program are its own business.
      {"WARN_UNUSED_ENV_VARS", "n"},
  };
  for (const auto& [name, value] : settings) {
    const auto status = ucp_config_modify(config, name, value.c_str());
    if (status != UCS_OK && std::string_view(name) != "WARN_UNUSED_ENV_VARS") {
      ucp_config_release(config);
      return fail(ErrorCode::kInvalidArgument, "UCX refuses {}={}: {}", name, value,
                  ucs_status_string(status));
    }
  }
  return config;
}

int open_pidfd(std::int64_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
}

bool watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

ucs_status_t on_message(void* arg, const void* header, std::size_t header_size, void* data,
                        std::size_t size, const ucp_am_recv_param_t* param) {
  auto& state = *static_cast<TransportState*>(arg);
  if (header_size != sizeof(WireHeader)) {
    ++state.counters.stranger;
    return UCS_OK;
  }
  WireHeader wire;
  std::memcpy(&wire, header, sizeof(wire));
  return state.arrive(wire, data, size, (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0,
                      (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0);
}

void on_endpoint_error(void* arg, ucp_ep_h endpoint, ucs_status_t status) {
  auto& state = *static_cast<TransportState*>(arg);
  state.broken.emplace_back(
      endpoint, Error{ErrorCode::kUnavailable,
                      fmt::format("the connection broke: {}", ucs_status_string(status))});
}

}  // namespace

Transport::Transport(std::unique_ptr<TransportState> state) : state_(std::move(state)) {}
Transport::~Transport() = default;

Result<std::unique_ptr<Transport>> Transport::create(const TransportOptions& options) {
  auto state = std::make_unique<TransportState>();
  state->options = options;
  WEFT_ASSIGN(ucp_config_t* const config, configure(options));
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP;
  auto status = ucp_init(&params, config, &state->context);
  ucp_config_release(config);
  if (status != UCS_OK) {
    return std::unexpected(
        ucx_failed(fmt::format("start UCX over {}", options.transports), status).error());
  }
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  status = ucp_worker_create(state->context, &worker, &state->worker);
  if (status != UCS_OK) return std::unexpected(ucx_failed("make a UCX worker", status).error());
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.cb = on_message;
  handler.arg = state.get();
  status = ucp_worker_set_am_recv_handler(state->worker, &handler);
  if (status != UCS_OK) return std::unexpected(ucx_failed("receive messages", status).error());
  ucp_address_t* address = nullptr;
  std::size_t size = 0;
  status = ucp_worker_get_address(state->worker, &address, &size);
  if (status != UCS_OK) return std::unexpected(ucx_failed("get an address", status).error());
  state->ucx_address.assign(reinterpret_cast<const char*>(address), size);
  ucp_worker_release_address(state->worker, address);
  state->own_address = encode({.member = options.self,
                               .incarnation = options.incarnation,
                               .machine = this_machine(),
                               .pid = ::getpid(),
                               .started = process_started(::getpid()),
                               .ucx = state->ucx_address});
  int events = -1;
  status = ucp_worker_get_efd(state->worker, &events);
  if (status != UCS_OK) return std::unexpected(ucx_failed("wait for UCX", status).error());
  state->epoll = ::epoll_create1(EPOLL_CLOEXEC);
  state->wake = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (state->epoll < 0 || state->wake < 0 || !watch(state->epoll, events) ||
      !watch(state->epoll, state->wake)) {
    return fail(ErrorCode::kResourceExhausted, "transport: no file descriptors left: {}",
                std::strerror(errno));
  }
  return std::unique_ptr<Transport>(new Transport(std::move(state)));
}

TransportState::~TransportState() {
  if (worker != nullptr) {
    const std::lock_guard lock(mutex);
    const Error why{ErrorCode::kCancelled, "the transport is closed"};
    for (auto& [member, peer] : peers) fail_peer(*peer, why);
    const Deadline deadline = Deadline::after(std::chrono::seconds(2));
    while ((!closing.empty() || !broken.empty()) && !deadline.expired()) progress_locked();
    for (auto& [key, message] : unexpected) drop(message);
    ucp_worker_destroy(worker);
  }
  for (auto& [member, peer] : peers) {
    if (peer->pidfd >= 0) ::close(peer->pidfd);
  }
  if (context != nullptr) ucp_cleanup(context);
  if (epoll >= 0) ::close(epoll);
  if (wake >= 0) ::close(wake);
}

MemberId Transport::self() const { return state_->options.self; }
std::string Transport::address() const { return state_->own_address; }

Peer* TransportState::find(MemberId member) {
  const auto found = peers.find(member);
  return found == peers.end() ? nullptr : found->second.get();
}

Status TransportState::open(const MemberAddress& address) {
  if (Peer* old = find(address.member)) {
    if (address.incarnation < old->address.incarnation) {
      return fail(ErrorCode::kUnavailable, "member {}: incarnation {} is over; {} has been seen",
                  address.member, address.incarnation, old->address.incarnation);
    }
    if (address.incarnation == old->address.incarnation) {
      if (old->state == Peer::State::kDead) return std::unexpected(old->why);
      return {};
    }
    fail_peer(*old, {ErrorCode::kUnavailable, fmt::format("member {} came back as incarnation {}",
                                                          address.member, address.incarnation)});
    if (old->pidfd >= 0) ::close(old->pidfd);
  }
  auto peer = std::make_unique<Peer>();
  peer->address = address;
  if (const auto shape = shapes.find(address.member); shape != shapes.end()) {
    peer->shaper.reshape(shape->second);
  }
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.ucx.data());
  peer->shared_memory =
      address.machine == this_machine() && options.transports.find("shm") != std::string::npos;
  params.err_mode = peer->shared_memory ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_endpoint_error;
  params.err_handler.arg = this;
  const auto status = ucp_ep_create(worker, &params, &peer->endpoint);
  if (status != UCS_OK) return ucx_failed(fmt::format("reach member {}", address.member), status);
  ++counters.endpoints_opened;
  if (address.machine == this_machine() && address.pid != ::getpid()) {
    peer->pidfd = open_pidfd(address.pid);
    const bool same = peer->pidfd >= 0 && process_started(address.pid) == address.started;
    if (!same) {  // gone already, or its number is another's now
      peer->state = Peer::State::kDead;
      peer->why = {
          ErrorCode::kUnavailable,
          fmt::format("member {} is dead: its process {} has ended", address.member, address.pid)};
      fail_peer(*peer, peer->why);
    } else {
      watch(epoll, peer->pidfd);
    }
  }
  if (peer->state != Peer::State::kDead && options.secret.empty()) peer->state = Peer::State::kOpen;
  Peer& placed = *(peers[address.member] = std::move(peer));
  if (placed.state == Peer::State::kDead) return std::unexpected(placed.why);
  return {};
}

Status Transport::connect(std::string_view text, Deadline deadline) {
  TransportState& s = *state_;
  WEFT_ASSIGN(const MemberAddress address, decode_member_address(text));
  {
    const std::lock_guard lock(s.mutex);
    WEFT_TRY(s.open(address));
    Peer& peer = *s.find(address.member);
    if (peer.state == Peer::State::kOpen) return {};
    if (!peer.first && peer.terms.first_nonce == Nonce{}) s.say_hello(peer);
  }
  for (int idle = 0;; ++idle) {
    {
      const std::lock_guard lock(s.mutex);
      if (s.progress_locked()) idle = 0;
      const Peer* peer = s.find(address.member);
      if (peer != nullptr && peer->state == Peer::State::kOpen) return {};
      if (peer != nullptr && peer->state == Peer::State::kDead) return std::unexpected(peer->why);
    }
    if (const Status late =
            deadline.check(fmt::format("shaking hands with member {}", address.member));
        !late) {
      return late;
    }
    if (idle > kRoundsBeforeSleep)
      s.block(deadline.earlier(Deadline::after(std::chrono::milliseconds(5))));
  }
}

bool Transport::connected(MemberId member) const {
  const std::lock_guard lock(state_->mutex);
  const Peer* peer = state_->find(member);
  return peer != nullptr && peer->state == Peer::State::kOpen;
}

void Transport::disconnect(MemberId member) {
  const std::lock_guard lock(state_->mutex);
  if (Peer* peer = state_->find(member)) {
    state_->fail_peer(*peer,
                      {ErrorCode::kCancelled, fmt::format("member {} was disconnected", member)});
  }
}

void TransportState::fail_peer(Peer& peer, Error why) {
  const bool was_dead = peer.state == Peer::State::kDead;
  peer.state = Peer::State::kDead;
  if (!was_dead) peer.why = why;
  if (peer.pidfd >= 0) {
    ::epoll_ctl(epoll, EPOLL_CTL_DEL, peer.pidfd, nullptr);
    ::close(peer.pidfd);
    peer.pidfd = -1;
  }
  if (peer.shared_memory) {
    // Closed with the worker; see Peer::shared_memory.
    for (const auto& operation : std::exchange(peer.in_flight, {})) {
      complete(*operation, std::unexpected(peer.why));
    }
  } else if (peer.endpoint != nullptr) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* request = ucp_ep_close_nbx(peer.endpoint, &param);
    if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
    peer.endpoint = nullptr;
  }
  forget_operations(peer.address.member, peer.why);
}

void TransportState::forget_operations(MemberId member, const Error& why) {
  std::vector<std::shared_ptr<Operation>> ended;
  for (auto it = posted.begin(); it != posted.end();) {
    if (it->first.source == member) {
      ended.push_back(it->second);
      it = posted.erase(it);
    } else {
      ++it;
    }
  }
  for (auto it = held.begin(); it != held.end();) {
    if (it->second.operation->peer == member) {
      ended.push_back(it->second.operation);
      it = held.erase(it);
    } else {
      ++it;
    }
  }
  for (const auto& operation : ended) {
    if (operation->parts == 0) complete(*operation, std::unexpected(why));
  }
}

bool TransportState::progress_locked() {
  bool moved = ucp_worker_progress(worker) != 0;
  if (!rendezvous_ready.empty()) {
    auto ready = std::exchange(rendezvous_ready, {});
    for (auto& [operation, descriptor] : ready) start_rendezvous(operation, descriptor);
    moved = true;
  }
  if (!control_in.empty()) {
    auto control = std::exchange(control_in, {});
    for (const auto& [source, text] : control) {
      on_control(static_cast<MessageKind>(text[0]), source, std::string_view(text).substr(1));
    }
    moved = true;
  }
  if (!broken.empty()) {
    auto news = std::exchange(broken, {});
    for (auto& [endpoint, why] : news) {
      for (auto& [member, peer] : peers) {
        if (peer->endpoint != endpoint) continue;
        why.message =
            fmt::format("member {} is dead or cannot be reached: {}", member, why.message);
        fail_peer(*peer, why);
      }
    }
    moved = true;
  }
  if (!held.empty()) release_held(now_ns());
  for (std::size_t i = 0; i < closing.size();) {
    if (ucp_request_check_status(closing[i]) == UCS_INPROGRESS) {
      ++i;
      continue;
    }
    ucp_request_free(closing[i]);
    closing[i] = closing.back();
    closing.pop_back();
    moved = true;
  }
  return moved;
}

void TransportState::block(Deadline deadline) {
  std::int64_t until = deadline.time().time_since_epoch().count();
  {
    const std::lock_guard lock(mutex);
    // UCS_ERR_BUSY: something came since the last round.
    if (ucp_worker_arm(worker) != UCS_OK) return;
    if (!held.empty()) until = std::min(until, held.begin()->first);
  }
  const std::int64_t now = now_ns();
  // Others may consume the event that ends our operation; then we look again soon.
  const std::int64_t longest = waiters.load(std::memory_order_relaxed) > 1 ? 1'000'000 : 50'000'000;
  const std::int64_t pause = std::clamp<std::int64_t>(until - now, 0, longest);
  timespec time{.tv_sec = 0, .tv_nsec = static_cast<long>(pause)};
  std::array<epoll_event, 16> events{};
  const int count =
      ::epoll_pwait2(epoll, events.data(), static_cast<int>(events.size()), &time, nullptr);
  if (count <= 0) return;
  const std::lock_guard lock(mutex);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    if (fd == wake) {
      std::uint64_t number = 0;
      (void)!::read(wake, &number, sizeof(number));
      continue;
    }
    for (auto& [member, peer] : peers) {
      if (peer->pidfd != fd) continue;
      // What it sent before it died is still delivered.
      while (ucp_worker_progress(worker) != 0) {
      }
      fail_peer(*peer,
                {ErrorCode::kUnavailable, fmt::format("member {} is dead: its process {} has ended",
                                                      member, peer->address.pid)});
      break;
    }
  }
}

void TransportState::run_abort_handlers() {
  std::vector<AbortNews> news;
  Transport::AbortHandler handler;
  {
    const std::lock_guard lock(mutex);
    if (aborts.empty()) return;
    news = std::exchange(aborts, {});
    // Whoever waits in that epoch must not wait on.
    for (const auto& item : news) end_epochs_before(item.group, item.epoch + 1);
    handler = abort_handler;
  }
  for (const auto& item : news) {
    if (handler) handler(item.group, item.epoch, item.verdict);
  }
}

Status Transport::wait(const Ticket& ticket, Deadline deadline) {
  WEFT_CHECK(ticket.valid());
  TransportState& s = *state_;
  const std::shared_ptr<Operation>& operation = ticket.operation_;
  s.waiters.fetch_add(1, std::memory_order_relaxed);
  bool given_up = false;
  for (int idle = 0; !operation->done.load(std::memory_order_acquire); ++idle) {
    {
      const std::lock_guard lock(s.mutex);
      if (s.progress_locked()) idle = 0;
    }
    s.run_abort_handlers();
    if (operation->done.load(std::memory_order_acquire)) break;
    if (!given_up && deadline.expired()) {
      given_up = true;
      const std::lock_guard lock(s.mutex);
      s.give_up(operation, {ErrorCode::kDeadlineExceeded, ""});
      continue;
    }
    if (idle < kRoundsBeforeYield) continue;
    if (idle < kRoundsBeforeSleep) {
      ::sched_yield();
    } else {
      s.block(given_up ? Deadline::after(std::chrono::milliseconds(10)) : deadline);
    }
  }
  s.waiters.fetch_sub(1, std::memory_order_relaxed);
  return operation->result;
}

std::optional<Status> Transport::test(const Ticket& ticket) {
  WEFT_CHECK(ticket.valid());
  if (!ticket.operation_->done.load(std::memory_order_acquire)) progress();
  if (!ticket.operation_->done.load(std::memory_order_acquire)) return std::nullopt;
  return ticket.operation_->result;
}

void Transport::cancel(const Ticket& ticket) {
  if (!ticket.valid()) return;
  {
    const std::lock_guard lock(state_->mutex);
    if (ticket.operation_->done.load(std::memory_order_acquire)) return;
    state_->give_up(ticket.operation_, {ErrorCode::kCancelled, ""});
  }
  (void)wait(ticket, Deadline::after(std::chrono::seconds(5)));
}

bool Transport::progress() {
  bool moved = false;
  {
    const std::lock_guard lock(state_->mutex);
    moved = state_->progress_locked();
  }
  state_->run_abort_handlers();
  return moved;
}

void Transport::on_abort(AbortHandler handler) {
  const std::lock_guard lock(state_->mutex);
  state_->abort_handler = std::move(handler);
}

void Transport::shape(MemberId member, const LinkShape& shape) {
  const std::lock_guard lock(state_->mutex);
  state_->shapes[member] = shape;
  Peer* peer = state_->find(member);
  if (peer == nullptr) return;
  peer->shaper.reshape(shape);
  // What a cut held back goes out under the new shape.
  std::vector<Held> again;
  for (auto it = state_->held.begin(); it != state_->held.end();) {
    if (it->second.cut && it->second.operation->peer == member) {
      again.push_back(it->second);
      it = state_->held.erase(it);
    } else {
      ++it;
    }
  }
  for (const Held& item : again) state_->send(item.operation, *peer);
}

TransportCounters Transport::counters() const {
  const std::lock_guard lock(state_->mutex);
  return state_->counters;
}

}  // namespace weft::comm
