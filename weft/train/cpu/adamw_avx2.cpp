#include "weft/train/cpu/adamw_kernel.h"

namespace weft::train {

const OptimizerKernels& optimizer_kernels_avx2() {
  static constexpr OptimizerKernels kKernels = {adamw_range, square_sums};
  return kKernels;
}

}  // namespace weft::train
