// The machine's limits, measured: what benchmarks divide by.
#pragma once

#include <cstdint>

#include "weft/base/thread_pool.h"

namespace weft::bench {

// Seconds for timing work of `threads` threads: wall time, but this thread's CPU
// time when it works alone, so that other programs on the machine count less.
double timing_seconds(int threads);

// GFLOP/s of the level's bf16 product instruction (f32 FMA below AVX-512), all
// threads of the pool, operands in registers. About 10 ms.
double measure_product_peak(ThreadPool& pool);
// The same of the int8 product instruction, a product and a sum counting two.
double measure_int8_peak(ThreadPool& pool);
// GFLOP/s of f32 fused multiply-adds in registers.
double measure_fma_peak(ThreadPool& pool);
// GB/s of one pass of reads over `data` (vector loads, each thread its own part).
double measure_read_rate(const void* data, std::int64_t bytes, ThreadPool& pool);

// One thread's share, by level: loops of `n` groups; the return value keeps the
// work alive.
float spin_fma_scalar(std::int64_t n);            // 32 flops a group
float spin_fma_avx2(std::int64_t n);              // 160
float spin_fma_avx512(std::int64_t n);            // 512
float spin_dpbf16_avx512(std::int64_t n);         // 1024
std::int32_t spin_dpbusd_avx512(std::int64_t n);  // 2048
void spin_tiles_bf16_amx(std::int64_t n);         // 65536
void spin_tiles_int8_amx(std::int64_t n);         // 131072
std::int64_t sum_bytes_scalar(const void* data, std::int64_t bytes);
std::int64_t sum_bytes_avx2(const void* data, std::int64_t bytes);
std::int64_t sum_bytes_avx512(const void* data, std::int64_t bytes);

}  // namespace weft::bench
