#include "weft/train/cpu/adamw_kernel.h"

namespace weft::train {

const OptimizerKernels& optimizer_kernels_avx512() {
  static constexpr OptimizerKernels kKernels = {adamw_range, square_sums};
  return kKernels;
}

}  // namespace weft::train
