// The loops behind ops_backward.h, over ranges that one thread computes. Each
// instruction level has a table of them; all give the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "weft/nn/ops_backward.h"

namespace weft::nn {

struct NormGradient {
  const float *x, *weight, *mean, *inv_std, *dy, *residual;  // mean is null for RMSNorm
  std::int64_t rows, n;
  float *dx, *dweight, *dbias;
};

struct LogProbGradient {
  float* logits;
  const float* lse;
  const std::int32_t* tokens;
  const float *dlogprob, *entropy, *dentropy;
  std::int64_t n;
  float temperature;
};

struct BackwardKernels {
  // dx of rows [begin, end); dweight and dbias of columns [begin, end) over all rows.
  void (*norm_rows)(const NormGradient&, std::int64_t begin, std::int64_t end);
  void (*norm_columns)(const NormGradient&, std::int64_t begin, std::int64_t end);
  void (*silu_mul)(const float* gate_up, const float* dy, std::int64_t n, float* dgate_up,
                   std::int64_t begin, std::int64_t end);
  void (*gelu)(const float* x, const float* dy, bool tanh_form, float* dx, std::int64_t begin,
               std::int64_t end);
  void (*add_rows)(const float* dy, std::int64_t rows, std::int64_t ld, float* sums,
                   std::int64_t begin, std::int64_t end);
  void (*add)(const float* a, const float* b, float* y, std::int64_t begin, std::int64_t end);
  void (*row_entropy)(const float* logits, const float* lse, std::int64_t n, float temperature,
                      float* entropy, std::int64_t begin, std::int64_t end);
  void (*log_prob)(const LogProbGradient&, std::int64_t begin, std::int64_t end);
  // One key head (and its query heads) of one unit: a segment without a parent and
  // the segments that follow it and name it as theirs.
  void (*attention)(const AttentionGradient&, std::span<const Segment> unit,
                    std::int64_t unit_index, std::int64_t kv_head);
};

extern const BackwardKernels kBackwardKernelsScalar, kBackwardKernelsAvx2, kBackwardKernelsAvx512;

// BackwardKernels::attention in bf16; bits of its own.
void attention_backward_amx(const AttentionGradient&, std::span<const Segment> unit,
                            std::int64_t unit_index, std::int64_t kv_head);

}  // namespace weft::nn
