// A member's address as it travels through the rendezvous: who it is, which process
// on which machine, and UCX's worker address.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weft/base/result.h"
#include "weft/comm/message.h"

namespace weft::comm {

struct MemberAddress {
  MemberId member = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t machine = 0;  // digest of the boot identifier and the PID namespace
  std::int64_t pid = 0;
  std::uint64_t started = 0;  // clock ticks after boot: tells a reused pid
  std::string ucx;
};

std::string encode(const MemberAddress& address);
// kInvalidArgument when it is truncated or its digest is wrong.
Result<MemberAddress> decode_member_address(std::string_view text);

// Identifies this machine (and PID namespace), so that a peer's pid means something.
std::uint64_t this_machine();
// Start time of a process in clock ticks after boot, or 0 when there is none.
std::uint64_t process_started(std::int64_t pid);

}  // namespace weft::comm
