// The kernels of the level in use.
#pragma once

#include "weft/nn/cpu/bf16_kernels.h"
#include "weft/nn/cpu/int8_kernels.h"
#include "weft/nn/cpu/row_kernels.h"
#include "weft/nn/isa.h"

namespace weft::nn {

inline const RowKernels& row_kernels() {
  switch (cpu_isa()) {
    case Isa::kScalar:
      return kRowKernelsScalar;
    case Isa::kAvx2:
      return kRowKernelsAvx2;
    default:
      return kRowKernelsAvx512;
  }
}

inline const Bf16Kernels& bf16_kernels() {
  switch (cpu_isa()) {
    case Isa::kScalar:
      return kBf16KernelsScalar;
    case Isa::kAvx2:
      return kBf16KernelsAvx2;
    case Isa::kAvx512:
      return kBf16KernelsAvx512;
    default:
      return kBf16KernelsAmx;
  }
}

inline const Int8Kernels& int8_kernels() {
  switch (cpu_isa()) {
    case Isa::kScalar:
      return kInt8KernelsScalar;
    case Isa::kAvx2:
      return kInt8KernelsAvx2;
    case Isa::kAvx512:
      return kInt8KernelsAvx512;
    default:
      return kInt8KernelsAmx;
  }
}

// Rows a piece of work should have so that waking a thread pays: about 16 Ki
// floats, some 5 us of one core.
inline std::int64_t row_grain(std::int64_t floats_per_row) {
  const std::int64_t grain = (std::int64_t{1} << 14) / (floats_per_row > 0 ? floats_per_row : 1);
  return grain > 0 ? grain : 1;
}

}  // namespace weft::nn
