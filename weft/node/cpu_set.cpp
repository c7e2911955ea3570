#include "weft/node/cpu_set.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "weft/base/file.h"

namespace weft::node {
namespace {

int topology_number(int cpu, std::string_view name, int otherwise) {
  const auto text =
      read_file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/{}", cpu, name), 64);
  return text ? std::atoi(text->c_str()) : otherwise;
}

}  // namespace

Result<std::vector<Cpu>> allowed_cpus() {
  // As large as any kernel's mask: 8,192 CPUs.
  constexpr int kCpus = 8192;
  std::vector<unsigned long> words(kCpus / (8 * sizeof(unsigned long)));
  auto* set = reinterpret_cast<cpu_set_t*>(words.data());
  const std::size_t bytes = words.size() * sizeof(words[0]);
  if (::sched_getaffinity(0, bytes, set) != 0) {
    return fail(ErrorCode::kIo, "cannot read this process's CPUs: {}", std::strerror(errno));
  }
  std::vector<Cpu> cpus;
  for (int id = 0; id < kCpus; ++id) {
    if (!CPU_ISSET_S(static_cast<std::size_t>(id), bytes, set)) continue;
    cpus.push_back(
        {id, topology_number(id, "physical_package_id", 0), topology_number(id, "core_id", id)});
  }
  std::ranges::sort(cpus, {}, [](const Cpu& c) { return std::tuple(c.package, c.core, c.id); });
  return cpus;
}

std::vector<std::vector<int>> split_cpus(const std::vector<Cpu>& cpus, std::uint32_t ranks) {
  std::vector<std::vector<int>> parts(ranks);
  if (cpus.size() < ranks) return parts;
  // By whole cores while there is one for each rank.
  std::vector<std::vector<int>> cores;
  std::map<std::pair<int, int>, std::size_t> place;
  for (const Cpu& cpu : cpus) {
    const auto [at, fresh] = place.try_emplace({cpu.package, cpu.core}, cores.size());
    if (fresh) cores.emplace_back();
    cores[at->second].push_back(cpu.id);
  }
  if (cores.size() < ranks) {
    cores.clear();
    for (const Cpu& cpu : cpus) cores.push_back({cpu.id});
  }
  const std::size_t each = cores.size() / ranks;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    for (std::size_t i = r * each; i < (r + 1) * each; ++i) {
      parts[r].insert(parts[r].end(), cores[i].begin(), cores[i].end());
    }
  }
  return parts;
}

std::string format_cpu_list(std::vector<int> cpus) {
  std::ranges::sort(cpus);
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[i]);
    if (end - i > 1) text += fmt::format("-{}", cpus[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace weft::node
