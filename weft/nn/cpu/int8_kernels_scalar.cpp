#include "weft/nn/cpu/int8_lanes.h"

namespace weft::nn {

const Int8Kernels kInt8KernelsScalar = {quantize_row_int8, product_int8_lanes};

}  // namespace weft::nn
