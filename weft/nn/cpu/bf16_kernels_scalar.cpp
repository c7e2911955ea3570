#include "weft/nn/cpu/lanes_scalar.h"
// The lanes above come first: the kernels below are written on them.
#include "weft/nn/cpu/bf16_lanes.h"

namespace weft::nn {

const Bf16Kernels kBf16KernelsScalar = {convert_lanes,  product_lanes, convert_gradient_lanes,
                                        gradient_lanes, pack_lanes,    dequantize_lanes,
                                        nullptr};

}  // namespace weft::nn
