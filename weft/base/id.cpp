#include "weft/base/id.h"

#include <atomic>
#include <charconv>
#include <random>

namespace weft {
namespace {

constexpr std::size_t kDigits = 16;
constexpr std::uint64_t kStride = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio, odd: visits all

std::uint64_t random_start() {
  std::random_device device;
  return (std::uint64_t{device()} << 32U) | device();
}

}  // namespace

std::uint64_t fresh_id_bits() {
  static std::atomic<std::uint64_t> next{random_start()};
  const std::uint64_t bits = next.fetch_add(kStride, std::memory_order_relaxed);
  return bits != 0 ? bits : next.fetch_add(kStride, std::memory_order_relaxed);
}

std::string format_id(std::string_view prefix, std::uint64_t bits) {
  return fmt::format("{}-{:016x}", prefix, bits);
}

Result<std::uint64_t> parse_id(std::string_view prefix, std::string_view text) {
  const auto bad = [&] {
    return fail(ErrorCode::kInvalidArgument,
                "'{}' is no identifier of the form {}- and {} hexadecimal digits",
                text.substr(0, 80), prefix, kDigits);
  };
  if (text.size() != prefix.size() + 1 + kDigits || !text.starts_with(prefix) ||
      text[prefix.size()] != '-')
    return bad();
  const std::string_view digits = text.substr(prefix.size() + 1);
  if (digits.find_first_not_of("0123456789abcdef") != std::string_view::npos) return bad();
  std::uint64_t bits = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
  return bits;
}

}  // namespace weft
