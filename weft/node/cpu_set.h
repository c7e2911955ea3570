// Which CPUs each rank of this machine runs on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"

namespace weft::node {

// A logical CPU and the core it is a thread of, as Linux numbers them.
struct Cpu {
  int id = 0;
  int package = 0;
  int core = 0;  // within the package
  bool operator==(const Cpu&) const = default;
};

// The CPUs that this process may use (its affinity mask), by package, core and number,
// so that neighbours in the list share most.
Result<std::vector<Cpu>> allowed_cpus();

// Cuts the list into `ranks` runs of equal length, one for each rank; CPUs left over go to
// nobody. Cores are not shared between ranks where there are as many cores as ranks. Empty
// runs for all when there are fewer CPUs than ranks: then pinning would only harm.
std::vector<std::vector<int>> split_cpus(const std::vector<Cpu>& cpus, std::uint32_t ranks);

// "0-3,8" for people and for WEFT_CPUS; "" for none.
std::string format_cpu_list(std::vector<int> cpus);

}  // namespace weft::node
