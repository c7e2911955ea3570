// The forward pass of every decoder-only family, over raw buffers: what the
// sampler runs, and what the trainer's autograd wrappers reproduce bit for bit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/base/result.h"
#include "weft/base/thread_pool.h"
#include "weft/model/config.h"
#include "weft/model/weights.h"
#include "weft/nn/attention.h"
#include "weft/nn/kv_pool.h"
#include "weft/nn/matmul.h"
#include "weft/nn/ops.h"

namespace weft::nn {

// Weights ready to run. Immutable once built and shared between engine and
// trainer; a new version is a new object.
struct LayerWeights {
  std::vector<float> attention_norm, attention_norm_bias, mlp_norm, mlp_norm_bias;
  std::vector<float> q_norm, k_norm;  // QK-norm, else empty
  PackedMatrix qkv;                   // rows: q, k, v
  PackedMatrix o;
  PackedMatrix gate_up;  // rows: gate, up (or up alone, not gated)
  PackedMatrix down;
  std::vector<float> qkv_bias, o_bias, gate_up_bias, down_bias;  // empty = none
};
struct TransformerWeights {
  model::ModelConfig config;
  PackedMatrix embedding;        // [vocab, hidden]
  std::vector<float> positions;  // GPT-2: [max_position, hidden]
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm, final_norm_bias;
  PackedMatrix lm_head;  // same object as embedding when tied
};

// Packs a model for `compute`. Quantised tensors keep their type under kBF16 and
// kInt8; under kInt8 a matrix that is not quantised runs as kBF16. Errors name the
// tensor that is missing or misshapen.
Result<std::shared_ptr<const TransformerWeights>> build_weights(const model::ModelConfig& config,
                                                                const model::WeightSet& weights,
                                                                Compute compute, ThreadPool& pool);

// One token to run: its sequence's page table must cover `position`.
struct TokenRow {
  std::int32_t token;
  std::int32_t sequence;  // index into `page_tables`
  std::int32_t position;
  bool want_logits = false;
};

// Runs rows of any mix of prefill and decode. The rows of one call may come in
// any order; keys and values of all earlier positions of a row's sequence must be
// in the pool already or be rows of this same call (of this sequence or of another
// one that holds the same page).
//
// The operators, in order, for all rows at once. H = hidden, D = head_dim; every
// buffer is f32 and each result row depends on its own input row (and, in
// attention, on the keys and values of its sequence) alone. A trainer that calls
// the same operators in this order gets the same bits.
//
//   x = matrix_row(embedding, token)                          [rows, H]
//   x = x + positions[position]                  only with learned_positions
//   for each layer:
//     h   = rms_norm(x, attention_norm) | layer_norm(x, attention_norm, attention_norm_bias)
//     qkv = matmul(layer.qkv, h, qkv_bias)                    [rows, (heads + 2 kv_heads) D]
//     q   = rms_norm(q, q_norm) per head; k likewise          only with qk_norm
//     rope(q), rope(k) at position                            unless learned_positions
//     store_kv(k, v)
//     a   = attention(q, ..., scale = 1 / sqrt(D))            [rows, heads D]
//     x   = x + matmul(layer.o, a, o_bias)
//     h   = rms_norm(x, mlp_norm) | layer_norm(x, mlp_norm, mlp_norm_bias)
//     g   = matmul(layer.gate_up, h, gate_up_bias)
//     g   = silu_mul(g)                                       gated | gelu(g) otherwise
//     x   = x + matmul(layer.down, g, down_bias)
//   h      = rms_norm(x, final_norm) | layer_norm(x, final_norm, final_norm_bias)
//   logits = matmul(lm_head, h)                               rows that want them
//
// The residual additions are single f32 additions in the order "x + product".
// The log-probability of a token is nn::log_prob(logits row, vocab, temperature,
// token), with temperature 1 for greedy replies.
//
// Not thread-safe: one caller at a time. Keeps its buffers between calls.
class Transformer {
 public:
  // `pool` must outlive this object. `max_positions` bounds TokenRow::position
  // (0 = the model's max_position).
  Transformer(std::shared_ptr<const TransformerWeights> weights, ThreadPool& pool,
              std::int64_t max_positions = 0);
  ~Transformer();
  // The new weights must have the same configuration.
  void set_weights(std::shared_ptr<const TransformerWeights> weights);
  const TransformerWeights& weights() const { return *weights_; }
  std::int64_t max_positions() const { return max_positions_; }

  // Writes the logits of the rows that want them, in their order: logits[i, vocab].
  // `logits` (and `hidden`, the final normalised states [i, H] of those rows, if not
  // null) grow as needed and never shrink.
  void forward(std::span<const TokenRow> rows,
               std::span<const std::span<const std::int32_t>> page_tables, KvPool& kv,
               std::vector<float>& logits, std::vector<float>* hidden = nullptr);

 private:
  struct Scratch;
  void embed(std::span<const TokenRow> rows);
  void attend(std::int64_t layer, std::span<const TokenRow> rows,
              std::span<const std::span<const std::int32_t>> page_tables, KvPool& kv);
  void feed_forward(std::int64_t layer, std::int64_t rows);
  void normalize(const float* x, const std::vector<float>& weight, const std::vector<float>& bias,
                 std::int64_t rows, float* y);
  void add(const float* y, std::int64_t rows);

  std::shared_ptr<const TransformerWeights> weights_;
  ThreadPool* pool_;
  std::int64_t max_positions_;
  RopeTable rope_;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace weft::nn
