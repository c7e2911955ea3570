// UCX finds networks in /sys/class/net. Where it is not mounted (a bare chroot), the tests
// of this program are skipped with the reason.
#include <gtest/gtest.h>

#include <filesystem>

namespace weft::comm {
namespace {

class Network : public testing::Environment {
  void SetUp() override {
    if (!std::filesystem::exists("/sys/class/net/lo"))
      GTEST_SKIP() << "UCX needs /sys/class/net/lo: mount sysfs to run these tests";
  }
};
[[maybe_unused]] const auto* const kNetwork = testing::AddGlobalTestEnvironment(new Network);

}  // namespace
}  // namespace weft::comm
