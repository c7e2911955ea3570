#include "weft/base/hash.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include "weft/base/file.h"
#include "weft/base/hex.h"

namespace weft {

std::uint64_t xxh3_64(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Hash128 xxh3_128(std::span<const std::byte> bytes, std::uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.high64, hash.low64};
}

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() {
    WEFT_CHECK(context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  WEFT_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  unsigned size = 0;
  auto* out = reinterpret_cast<unsigned char*>(digest.data());
  WEFT_CHECK(EVP_DigestFinal_ex(state_->context, out, &size) == 1 && size == digest.size());
  return digest;
}

Sha256Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

Result<std::string> sha256_file(const std::filesystem::path& path) {
  WEFT_ASSIGN(const MappedFile file, MappedFile::open(path));
  return to_hex(sha256(file.bytes()));
}

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const std::byte byte : bytes) {
    hex += kDigits[std::to_integer<unsigned>(byte) >> 4];
    hex += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return hex;
}

Result<std::vector<std::byte>> from_hex(std::string_view hex) {
  if (hex.size() % 2 != 0) {
    return fail(ErrorCode::kInvalidArgument, "\"{}\" has an odd number of hex digits", hex);
  }
  std::vector<std::byte> bytes;
  bytes.reserve(hex.size() / 2);
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = hex_digit(hex[i]);
    const int low = hex_digit(hex[i + 1]);
    if (high < 0 || low < 0) {
      return fail(ErrorCode::kInvalidArgument, "\"{}\" is not hexadecimal", hex);
    }
    bytes.push_back(static_cast<std::byte>(high * 16 + low));
  }
  return bytes;
}

}  // namespace weft
