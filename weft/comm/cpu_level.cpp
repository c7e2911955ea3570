#include "weft/comm/cpu_level.h"

namespace weft::comm {

CpuLevel cpu_level() {
  static const CpuLevel found = [] {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
      return CpuLevel::kAvx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) return CpuLevel::kAvx2;
    return CpuLevel::kBaseline;
  }();
  return found;
}

}  // namespace weft::comm
