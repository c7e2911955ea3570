#include "bench/limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <vector>

#include "bench/peak.h"
#include "weft/nn/isa.h"

namespace weft::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Larger than any last-level cache that one machine of ours shares out.
constexpr std::int64_t kReadBytes = std::int64_t{512} << 20;

double measure_read(ThreadPool& pool) {
  const std::vector<std::uint64_t> words(kReadBytes / 8, 1);
  std::atomic<std::uint64_t> sink{0};
  double best = 0;
  for (int run = 0; run < 5; ++run) {
    const auto begin = Clock::now();
    pool.parallel_for(
        static_cast<std::int64_t>(words.size()), 1, [&](std::int64_t first, std::int64_t last) {
          sink += std::accumulate(words.begin() + first, words.begin() + last, std::uint64_t{0});
        });
    best = std::max(best, static_cast<double>(kReadBytes) / seconds_since(begin));
  }
  return best;
}

// Operations a second of `loop` on all threads at once.
double measure_peak(ThreadPool& pool, double (*loop)(std::int64_t, float*)) {
  constexpr std::int64_t kRounds = 400'000;
  const int threads = pool.threads();
  double best = 0;
  for (int run = 0; run < 5; ++run) {
    std::vector<double> operations(static_cast<std::size_t>(threads));
    std::vector<float> sinks(static_cast<std::size_t>(threads) * 64);
    const auto begin = Clock::now();
    pool.parallel_for(threads, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        operations[static_cast<std::size_t>(i)] =
            loop(kRounds, &sinks[static_cast<std::size_t>(i) * 64]);
      }
    });
    const double all = std::accumulate(operations.begin(), operations.end(), 0.0);
    best = std::max(best, all / seconds_since(begin));
  }
  return best;
}

}  // namespace

MachineLimits measure_limits(ThreadPool& pool) {
  MachineLimits limits;
  limits.read_bytes_per_s = measure_read(pool);
  switch (nn::cpu_isa()) {
    case nn::Isa::kAmx:
      limits.product = "amx";
      limits.bf16_flops_per_s = measure_peak(pool, peak_bf16_amx);
      limits.int8_flops_per_s = measure_peak(pool, peak_int8_amx);
      break;
    case nn::Isa::kAvx512:
      limits.product = "avx512_bf16";
      limits.bf16_flops_per_s = measure_peak(pool, peak_bf16_avx512);
      limits.int8_flops_per_s = measure_peak(pool, peak_int8_avx512);
      break;
    default:
      // Without bf16 instructions a bf16 product is an f32 one; int8 products by
      // vpmaddubsw and vpmaddwd do at most twice as many.
      limits.product = "fma f32";
      limits.bf16_flops_per_s = measure_peak(pool, peak_fma_avx2);
      limits.int8_flops_per_s = 2 * limits.bf16_flops_per_s;
      break;
  }
  return limits;
}

double least_seconds(const MachineLimits& limits, double bytes_read, double flops, bool int8) {
  return std::max(bytes_read / limits.read_bytes_per_s,
                  flops / (int8 ? limits.int8_flops_per_s : limits.bf16_flops_per_s));
}

}  // namespace weft::bench
