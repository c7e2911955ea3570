#include "weft/nn/cpu/lanes_avx512.h"
// The lanes above come first: the loops below are written on them.
#include "weft/nn/cpu/transcendental_lanes.h"
// clang-format off
#include "weft/nn/cpu/attention_backward_lanes.h"
#include "weft/nn/cpu/ops_backward_lanes.h"
// clang-format on

namespace weft::nn {

const BackwardKernels kBackwardKernelsAvx512 = {
    .norm_rows = norm_rows_backward_lanes,
    .norm_columns = norm_columns_backward_lanes,
    .silu_mul = silu_mul_backward_lanes,
    .gelu = gelu_backward_lanes,
    .add_rows = add_rows_backward_lanes,
    .add = add_arrays_lanes,
    .row_entropy = row_entropy_lanes,
    .log_prob = log_prob_backward_lanes,
    .attention = attention_backward_lanes,
};

}  // namespace weft::nn
