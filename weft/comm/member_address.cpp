#include "weft/comm/member_address.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "weft/base/file.h"
#include "weft/base/hash.h"

namespace weft::comm {
namespace {

constexpr std::string_view kMagic = "WFTADDR1";

void put(std::string& to, std::uint64_t value) {
  char bytes[8];
  std::memcpy(bytes, &value, 8);
  to.append(bytes, 8);
}

std::uint64_t take(std::string_view& from) {
  std::uint64_t value = 0;
  std::memcpy(&value, from.data(), 8);
  from.remove_prefix(8);
  return value;
}

}  // namespace

std::string encode(const MemberAddress& address) {
  std::string text(kMagic);
  put(text, address.member);
  put(text, address.incarnation);
  put(text, address.machine);
  put(text, static_cast<std::uint64_t>(address.pid));
  put(text, address.started);
  text += address.ucx;
  put(text, xxh3_64(bytes_of(text)));
  return text;
}

Result<MemberAddress> decode_member_address(std::string_view text) {
  if (text.size() < kMagic.size() + 6 * 8 || !text.starts_with(kMagic)) {
    return fail(ErrorCode::kInvalidArgument, "{} bytes are not a member's address", text.size());
  }
  std::string_view tail = text.substr(text.size() - 8);
  text.remove_suffix(8);
  if (take(tail) != xxh3_64(bytes_of(text))) {
    return fail(ErrorCode::kInvalidArgument, "a member's address is damaged: its digest is wrong");
  }
  text.remove_prefix(kMagic.size());
  MemberAddress address;
  address.member = static_cast<MemberId>(take(text));
  address.incarnation = take(text);
  address.machine = take(text);
  address.pid = static_cast<std::int64_t>(take(text));
  address.started = take(text);
  address.ucx = text;
  return address;
}

std::uint64_t this_machine() {
  static const std::uint64_t machine = [] {
    std::string text = read_file("/proc/sys/kernel/random/boot_id", 4096).value_or("no boot id");
    std::array<char, 128> space{};
    if (::readlink("/proc/self/ns/pid", space.data(), space.size() - 1) > 0) text += space.data();
    return xxh3_64(bytes_of(text));
  }();
  return machine;
}

std::uint64_t process_started(std::int64_t pid) {
  const auto stat = read_file(fmt::format("/proc/{}/stat", pid), 4096);
  if (!stat) return 0;
  // Field 22, counted after the name, which is in brackets and may hold anything.
  std::size_t at = stat->rfind(')');
  for (int field = 2; at != std::string::npos && field < 22; ++field) at = stat->find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoull(stat->c_str() + at + 1, nullptr, 10);
}

}  // namespace weft::comm
