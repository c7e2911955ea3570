// What travels: the key by which a message finds its receiver, and the header on
// the wire (docs/protocols/transport.md).
#pragma once

#include <cstdint>
#include <functional>

namespace weft::comm {

// A member of a job: its number among all processes that ever belonged to it. It
// stays with the process while groups and ranks change.
using MemberId = std::uint32_t;

// Which message of which operation: both sides compute the same key. `epoch` is
// that of the group; a message of an older epoch is refused.
struct MessageKey {
  std::uint64_t group = 0;
  std::uint32_t epoch = 0;
  std::uint32_t op = 0;    // the operation's number within group and epoch
  std::uint32_t step = 0;  // which message of the operation
  MemberId source = 0;
  bool operator==(const MessageKey&) const = default;
};

struct MessageKeyHash {
  std::size_t operator()(const MessageKey& key) const {
    std::uint64_t h = key.group * 0x9e3779b97f4a7c15ULL;
    h = (h ^ (std::uint64_t{key.epoch} << 32 | key.op)) * 0xff51afd7ed558ccdULL;
    h = (h ^ (h >> 32) ^ (std::uint64_t{key.step} << 32 | key.source)) * 0xc4ceb9fe1a85ec53ULL;
    return static_cast<std::size_t>(h ^ (h >> 29));
  }
};

enum class MessageKind : std::uint32_t {
  kData = 1,
  kHello,    // handshake: who I am, my address, a nonce
  kWelcome,  // handshake: the answer, with proof of the secret
  kConfirm,  // handshake: the first side's proof
  kAbort,    // a group's epoch has ended: the payload is the verdict
};

inline constexpr std::uint32_t kWireMagic = 0x57465401;  // "WFT", version 1

struct WireHeader {
  std::uint32_t magic = kWireMagic;
  MessageKind kind = MessageKind::kData;
  std::uint64_t session = 0;  // proves the handshake; 0 where no secret is set
  std::uint64_t group = 0;
  std::uint64_t serial = 0;  // of this sender to this receiver; a second copy is refused
  std::uint32_t epoch = 0;
  std::uint32_t op = 0;
  std::uint32_t step = 0;
  MemberId source = 0;
};
static_assert(sizeof(WireHeader) == 48);

}  // namespace weft::comm
