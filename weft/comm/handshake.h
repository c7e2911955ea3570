// The proofs of the shared secret (docs/protocols/transport.md): HMAC-SHA256 over
// both members' numbers, incarnations and nonces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "weft/comm/message.h"

namespace weft::comm {

using Nonce = std::array<std::byte, 16>;
using Proof = std::array<std::byte, 32>;

// Random bytes from the operating system.
Nonce fresh_nonce();

struct HandshakeTerms {
  MemberId first = 0;  // who said hello
  MemberId second = 0;
  std::uint64_t first_incarnation = 0;
  std::uint64_t second_incarnation = 0;
  Nonce first_nonce{};
  Nonce second_nonce{};
};

// `purpose` is "welcome", "confirm" or "session".
Proof prove(std::string_view secret, std::string_view purpose, const HandshakeTerms& terms);
bool equal(const Proof& a, const Proof& b);  // in constant time
// What both sides put into each message afterwards; never 0.
std::uint64_t session_of(std::string_view secret, const HandshakeTerms& terms);

}  // namespace weft::comm
