#include "weft/nn/cpu/lanes_scalar.h"
// The lanes above come first: the kernels below are written on them.
#include "weft/nn/cpu/attention_lanes.h"
#include "weft/nn/cpu/product_f32_lanes.h"
#include "weft/nn/cpu/row_kernels_lanes.h"
#include "weft/nn/cpu/sampling_lanes.h"

namespace weft::nn {

const RowKernels kRowKernelsScalar = {rms_norm_lanes,  layer_norm_lanes,    rope_lanes,
                                      silu_mul_lanes,  gelu_lanes,          log_sum_exp_lanes,
                                      exp_lanes,       largest_logit_lanes, softmax_weights_lanes,
                                      attention_lanes, product_f32_lanes,   gradient_f32_lanes};

}  // namespace weft::nn
