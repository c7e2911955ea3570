// Loops of products that touch only registers: the rate that no kernel passes.
#pragma once

#include <cstdint>

namespace weft::bench {

// Each does `rounds` rounds and gives the floating-point (or integer) operations
// done, a product and a sum counting two. `sink` keeps the result alive. Call only
// where the processor has the instructions.
double peak_fma_avx2(std::int64_t rounds, float* sink);
double peak_bf16_avx512(std::int64_t rounds, float* sink);
double peak_int8_avx512(std::int64_t rounds, float* sink);
double peak_bf16_amx(std::int64_t rounds, float* sink);
double peak_int8_amx(std::int64_t rounds, float* sink);

}  // namespace weft::bench
