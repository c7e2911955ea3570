// What this machine can do at most, measured now: the denominators of `of_limit`.
#pragma once

#include <string>

#include "weft/base/thread_pool.h"

namespace weft::bench {

struct MachineLimits {
  double read_bytes_per_s = 0;  // streaming reads of memory by all threads
  double bf16_flops_per_s = 0;  // bf16 products in registers; f32 where there is no bf16
  double int8_flops_per_s = 0;  // int8 products in registers, a product and a sum count two
  double f32_flops_per_s = 0;   // f32 fused multiply-adds in registers
  std::string product;          // which instructions: "amx", "avx512_bf16", "fma f32"
};

// Takes about a second. Each figure is the best of several short runs, since
// whatever else the machine does can only lower it.
MachineLimits measure_limits(ThreadPool& pool);

// Seconds that a pass needs at least: its weights must be read once, and its
// products done; neither can hide the other's excess.
double least_seconds(const MachineLimits& limits, double bytes_read, double flops, bool int8);

}  // namespace weft::bench
