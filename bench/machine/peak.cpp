#include "bench/machine/peak.h"

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>

#include "weft/nn/isa.h"

namespace weft::bench {
namespace {

using nn::Isa;

double seconds_of(ThreadPool& pool, const std::function<void()>& body) {
  const double start = timing_seconds(pool.threads());
  pool.parallel_for(pool.threads(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body();
  });
  return (timing_seconds(pool.threads()) - start);
}

template <class T>
void keep(const T& value) {
  __asm__ volatile("" : : "g"(&value) : "memory");
}

}  // namespace

double timing_seconds(int threads) {
  timespec t{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double measure_fma_peak(ThreadPool& pool) {
  const Isa isa = nn::cpu_isa();
  const std::int64_t n = isa == Isa::kScalar ? 200000 : 2000000;
  const double flops = isa == Isa::kScalar ? 32.0 : isa == Isa::kAvx2 ? 160.0 : 512.0;
  const double seconds = seconds_of(pool, [&] {
    keep(isa == Isa::kScalar ? spin_fma_scalar(n)
         : isa == Isa::kAvx2 ? spin_fma_avx2(n)
                             : spin_fma_avx512(n));
  });
  return flops * static_cast<double>(n) * pool.threads() / seconds * 1e-9;
}

double measure_product_peak(ThreadPool& pool) {
  const Isa isa = nn::cpu_isa();
  if (isa < Isa::kAvx512) return measure_fma_peak(pool);
  const std::int64_t n = isa == Isa::kAmx ? 300000 : 1000000;
  const double flops = isa == Isa::kAmx ? 65536.0 : 1024.0;
  const double seconds = seconds_of(pool, [&] {
    if (isa == Isa::kAmx) {
      spin_tiles_bf16_amx(n);
    } else {
      keep(spin_dpbf16_avx512(n));
    }
  });
  return flops * static_cast<double>(n) * pool.threads() / seconds * 1e-9;
}

double measure_int8_peak(ThreadPool& pool) {
  const Isa isa = nn::cpu_isa();
  // By vpmaddubsw and vpmaddwd at most twice as many as f32 products.
  if (isa < Isa::kAvx512) return 2 * measure_fma_peak(pool);
  const std::int64_t n = isa == Isa::kAmx ? 300000 : 1000000;
  const double operations = isa == Isa::kAmx ? 131072.0 : 2048.0;
  const double seconds = seconds_of(pool, [&] {
    if (isa == Isa::kAmx) {
      spin_tiles_int8_amx(n);
    } else {
      keep(spin_dpbusd_avx512(n));
    }
  });
  return operations * static_cast<double>(n) * pool.threads() / seconds * 1e-9;
}

double measure_read_rate(const void* data, std::int64_t bytes, ThreadPool& pool) {
  const Isa isa = nn::cpu_isa();
  const double start = timing_seconds(pool.threads());
  pool.parallel_for(bytes / 512, 1, [&](std::int64_t begin, std::int64_t end) {
    const auto* at = static_cast<const std::byte*>(data) + begin * 512;
    const std::int64_t size = (end - begin) * 512;
    keep(isa == Isa::kScalar ? sum_bytes_scalar(at, size)
         : isa == Isa::kAvx2 ? sum_bytes_avx2(at, size)
                             : sum_bytes_avx512(at, size));
  });
  return static_cast<double>(bytes) * 1e-9 / (timing_seconds(pool.threads()) - start);
}

float spin_fma_scalar(std::int64_t n) {
  float a[16] = {};
  for (std::int64_t i = 0; i < n; ++i) {
    for (float& x : a) x = __builtin_fmaf(x, 0.5F, 1.0F);
  }
  return std::accumulate(a, a + 16, 0.0F);
}

std::int64_t sum_bytes_scalar(const void* data, std::int64_t bytes) {
  const auto* p = static_cast<const std::int64_t*>(data);
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < bytes / 8; ++i) sum ^= p[i];
  return sum;
}

}  // namespace weft::bench
