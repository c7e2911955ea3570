// The row-wise kernels of one instruction level. Plain data and pointers only:
// this header is included by files compiled for different levels, so nothing in
// it may instantiate code.
#pragma once

#include <cstdint>

namespace weft::nn {

// One head's query of one row, among items of one sequence and one kv head.
struct AttentionItem {
  const float* q;
  float* out;
  std::int64_t position;
};

struct AttentionChunk {
  const float* const* keys;  // block pointers of the sequence
  const float* const* values;
  std::int64_t kv_offset;  // floats from a block's start to this kv head
  std::int64_t head_dim;
  float scale;
  std::int64_t window;  // 0 = all
  const AttentionItem* items;
  std::int64_t count;  // <= kAttentionItems
  float* maxima;       // results, of each item: its largest score, the sum of exp(score - that)
  float* sums;
  float* scratch;  // attention_scratch_floats(head_dim) floats
};
constexpr std::int64_t kAttentionItems = 48;
constexpr std::int64_t attention_scratch_floats(std::int64_t head_dim) {
  return kAttentionItems * (4 + 32 + ((head_dim + 15) & ~std::int64_t{15}));
}

constexpr std::int64_t kSoftmaxBlockLogits = 256;  // kSoftmaxBlock of ops.h

struct RowKernels {
  void (*rms_norm)(const float* x, const float* weight, float eps, std::int64_t rows,
                   std::int64_t n, float* y, float* inv_rms);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps,
                     std::int64_t rows, std::int64_t n, float* y, float* mean, float* inv_std);
  // Rotates one row of `heads` heads; sign is 1, or -1 to rotate back.
  void (*rope)(const float* cos, const float* sin, std::int64_t half, std::int64_t heads,
               std::int64_t head_dim, float sign, float* x);
  void (*silu_mul)(const float* gate_up, std::int64_t rows, std::int64_t n, float* y);
  void (*gelu)(const float* x, std::int64_t count, bool tanh_form, float* y);
  void (*log_sum_exp)(const float* logits, std::int64_t n, float inv_temperature, float* max,
                      float* sum);
  void (*exp)(const float* x, std::int64_t n, float* y);
  // See largest_logit and softmax_weights in ops.h.
  float (*largest_logit)(const float* logits, std::int64_t n, float inv_temperature,
                         std::int64_t* index);
  float (*softmax_weights)(const float* logits, std::int64_t n, float inv_temperature, float peak,
                           float least, float* weights, double* running);
  void (*attention)(const AttentionChunk& chunk);
  // y[m, 16 * strips] = x[m, k] * w (+ y if accumulate), w packed in strips of
  // [k, 16]; `columns` bounds what is stored of the last strip.
  void (*product_f32)(const float* w, std::int64_t k, std::int64_t strips, std::int64_t columns,
                      const float* x, std::int64_t m, std::int64_t ldx, const float* bias,
                      bool accumulate, float* y, std::int64_t ldy);
  // dw[out_begin..out_end, in] += dy^T x over rows in ascending order.
  void (*gradient_f32)(const float* dy, std::int64_t lddy, const float* x, std::int64_t ldx,
                       std::int64_t rows, std::int64_t out_begin, std::int64_t out_end,
                       std::int64_t in, float* dw, std::int64_t lddw);
};

extern const RowKernels kRowKernelsScalar, kRowKernelsAvx2, kRowKernelsAvx512;

}  // namespace weft::nn
