// Digests: XXH3 where speed counts (tables, caches, snapshots), SHA-256 where
// bytes come from outside and must be the ones that were promised.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"

namespace weft {

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::uint64_t xxh3_64(std::span<const std::byte> bytes, std::uint64_t seed = 0);

struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const Hash128&) const = default;
  std::string hex() const;  // 32 digits, the high word first
};
Hash128 xxh3_128(std::span<const std::byte> bytes, std::uint64_t seed = 0);

using Sha256Digest = std::array<std::byte, 32>;

// SHA-256 of bytes that arrive in pieces. `finish` ends it; start another one then.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(std::span<const std::byte> bytes);
  Sha256Digest finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Sha256Digest sha256(std::span<const std::byte> bytes);
// The digest of a file, in hex.
Result<std::string> sha256_file(const std::filesystem::path& path);

std::string to_hex(std::span<const std::byte> bytes);  // lower case
Result<std::vector<std::byte>> from_hex(std::string_view hex);

}  // namespace weft
