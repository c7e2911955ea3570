#include "bench/machine/limits.h"

#include <algorithm>
#include <vector>

#include "bench/machine/peak.h"
#include "weft/nn/isa.h"

namespace weft::bench {
namespace {

// Larger than any last-level cache that one machine of ours shares out.
constexpr std::int64_t kReadBytes = std::int64_t{512} << 20;

}  // namespace

MachineLimits measure_limits(ThreadPool& pool) {
  MachineLimits limits;
  const std::vector<std::uint64_t> memory(kReadBytes / 8, 1);
  for (int run = 0; run < 5; ++run) {
    limits.read_bytes_per_s =
        std::max(limits.read_bytes_per_s, 1e9 * measure_read_rate(memory.data(), kReadBytes, pool));
    limits.bf16_flops_per_s = std::max(limits.bf16_flops_per_s, 1e9 * measure_product_peak(pool));
    limits.int8_flops_per_s = std::max(limits.int8_flops_per_s, 1e9 * measure_int8_peak(pool));
    limits.f32_flops_per_s = std::max(limits.f32_flops_per_s, 1e9 * measure_fma_peak(pool));
  }
  // Rounded numbers can be multiplied in f32 too, which is faster where the bf16
  // instruction takes two cycles.
  limits.bf16_flops_per_s = std::max(limits.bf16_flops_per_s, limits.f32_flops_per_s);
  switch (nn::cpu_isa()) {
    case nn::Isa::kAmx:
      limits.product = "amx";
      break;
    case nn::Isa::kAvx512:
      limits.product = "avx512_bf16";
      break;
    default:
      limits.product = "fma f32";
      break;
  }
  return limits;
}

double least_seconds(const MachineLimits& limits, double bytes_read, double flops, bool int8) {
  return std::max(bytes_read / limits.read_bytes_per_s,
                  flops / (int8 ? limits.int8_flops_per_s : limits.bf16_flops_per_s));
}

}  // namespace weft::bench
