// Id<Tag>: 64 bits that name one thing, of a type that keeps requests, runs and
// completions apart. Written as the tag's prefix and 16 hexadecimal digits:
// "run-00f1a2b3c4d5e6f7".
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "weft/base/result.h"

namespace weft {

// 64 bits that no earlier call of this process gave, and that no other process gives
// but by chance: a random start and an odd stride. Never 0. Thread-safe.
std::uint64_t fresh_id_bits();

// "<prefix>-<16 lower-case hexadecimal digits>", and back. kInvalidArgument quotes the
// text and shows the form that was wanted.
std::string format_id(std::string_view prefix, std::uint64_t bits);
Result<std::uint64_t> parse_id(std::string_view prefix, std::string_view text);

// Tag::kPrefix is the prefix. A default Id is 0 and names nothing.
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  explicit constexpr Id(std::uint64_t bits) : bits_(bits) {}
  static Id fresh() { return Id(fresh_id_bits()); }
  static Result<Id> parse(std::string_view text) {
    WEFT_ASSIGN(const std::uint64_t bits, parse_id(Tag::kPrefix, text));
    return Id(bits);
  }

  constexpr std::uint64_t bits() const { return bits_; }
  explicit constexpr operator bool() const { return bits_ != 0; }
  auto operator<=>(const Id&) const = default;
  std::string str() const { return format_id(Tag::kPrefix, bits_); }

 private:
  std::uint64_t bits_ = 0;
};

struct RunTag {
  static constexpr std::string_view kPrefix = "run";
};
using RunId = Id<RunTag>;  // one training or post-training run, over all its resumptions

}  // namespace weft

template <class Tag>
struct std::hash<weft::Id<Tag>> {
  std::size_t operator()(weft::Id<Tag> id) const noexcept {
    return std::hash<std::uint64_t>{}(id.bits());
  }
};
