// The handshake: hello, welcome, confirm (docs/protocols/transport.md has the states).
#include <cstring>

#include "weft/base/log.h"
#include "weft/comm/transport_state.h"

namespace weft::comm {
namespace {

template <class T>
void append(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <class T>
bool take(std::string_view& from, T& value) {
  if (from.size() < sizeof(T)) return false;
  std::memcpy(&value, from.data(), sizeof(T));
  from.remove_prefix(sizeof(T));
  return true;
}

}  // namespace

void TransportState::send_control(Peer& peer, MessageKind kind, std::string payload) {
  auto operation = std::make_shared<Operation>();
  operation->peer = peer.address.member;
  operation->owned = std::move(payload);
  operation->from = reinterpret_cast<const std::byte*>(operation->owned.data());
  operation->size = operation->owned.size();
  operation->header.kind = kind;
  operation->header.source = options.self;
  hand_to_ucx(operation, peer, 1);
}

void TransportState::say_hello(Peer& peer) {
  peer.first = true;
  peer.terms = {.first = options.self,
                .second = peer.address.member,
                .first_incarnation = options.incarnation,
                .second_incarnation = peer.address.incarnation,
                .first_nonce = fresh_nonce(),
                .second_nonce = {}};
  std::string payload;
  append(payload, peer.terms.first_nonce);
  append(payload, prove(options.secret, "hello" + own_address, peer.terms));
  payload += own_address;
  send_control(peer, MessageKind::kHello, std::move(payload));
}

void TransportState::on_control(MessageKind kind, MemberId source, std::string_view payload) {
  const auto refuse = [&](std::string_view why) {
    ++counters.stranger;
    log_warn("transport: refused a handshake in the name of member {}: {}", source, why);
  };
  if (options.secret.empty()) return refuse("no secret is set here");
  if (kind == MessageKind::kHello) {
    Nonce nonce;
    Proof claim;
    if (!take(payload, nonce) || !take(payload, claim)) return refuse("truncated");
    const auto address = decode_member_address(payload);
    if (!address || address->member != source) return refuse("its address is damaged");
    // Before anything changes here: a stranger must not unseat a member.
    const HandshakeTerms hello{.first = source,
                               .second = options.self,
                               .first_incarnation = address->incarnation,
                               .second_incarnation = options.incarnation,
                               .first_nonce = nonce,
                               .second_nonce = {}};
    if (!equal(claim, prove(options.secret, fmt::format("hello{}", payload), hello))) {
      return refuse("it does not know the secret");
    }
    if (const Status opened = open(*address); !opened) return refuse(opened.error().message);
    Peer& peer = *find(source);
    if (peer.state == Peer::State::kOpen) return refuse("it is connected already");
    // Both said hello: the smaller number's counts.
    if (peer.first && options.self < source) return;
    peer.first = false;
    peer.terms = {.first = source,
                  .second = options.self,
                  .first_incarnation = address->incarnation,
                  .second_incarnation = options.incarnation,
                  .first_nonce = nonce,
                  .second_nonce = fresh_nonce()};
    std::string answer;
    append(answer, peer.terms.second_nonce);
    append(answer, prove(options.secret, "welcome", peer.terms));
    send_control(peer, MessageKind::kWelcome, std::move(answer));
    return;
  }
  Peer* peer = find(source);
  if (peer == nullptr || peer->state != Peer::State::kShaking) return refuse("nothing was asked");
  Proof proof;
  if (kind == MessageKind::kWelcome && peer->first) {
    if (!take(payload, peer->terms.second_nonce) || !take(payload, proof))
      return refuse("truncated");
    if (!equal(proof, prove(options.secret, "welcome", peer->terms))) {
      refuse("it does not know the secret");
      fail_peer(*peer, {ErrorCode::kUnavailable,
                        fmt::format("member {} does not know the job's secret", source)});
      return;
    }
    std::string answer;
    append(answer, prove(options.secret, "confirm", peer->terms));
    send_control(*peer, MessageKind::kConfirm, std::move(answer));
  } else if (kind == MessageKind::kConfirm && !peer->first) {
    if (!take(payload, proof)) return refuse("truncated");
    if (!equal(proof, prove(options.secret, "confirm", peer->terms))) {
      return refuse("it does not know the secret");
    }
  } else {
    return refuse("out of turn");
  }
  peer->session = session_of(options.secret, peer->terms);
  peer->state = Peer::State::kOpen;
}

}  // namespace weft::comm
