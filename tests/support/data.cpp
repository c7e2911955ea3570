#include "tests/support/data.h"

#include <cstdlib>

#include "weft/base/file.h"

namespace weft::test {

std::filesystem::path data_dir() {
  if (const char* dir = std::getenv("WEFT_DATA")) return dir;
  return std::filesystem::path(WEFT_SOURCE_DIR) / ".." / "shared" / "data";
}

std::filesystem::path smollm2_file() {
  auto cache = cache_dir();
  if (!cache) return {};
  auto path = *cache / "models" / "smollm2-135m-instruct" / "SmolLM2-135M-Instruct.Q4_1.gguf";
  return std::filesystem::exists(path) ? path : std::filesystem::path{};
}

bool slow_tests() {
  const char* slow = std::getenv("WEFT_SLOW");
  return slow != nullptr && std::string(slow) != "0";
}

}  // namespace weft::test
