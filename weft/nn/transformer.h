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
#include "weft/nn/matmul.h"
#include "weft/nn/ops.h"

namespace weft::nn {

// Weights ready to run. Immutable once built and shared between engine and
// trainer; a new version is a new object.
struct LayerWeights {
  std::vector<float> attention_norm, attention_norm_bias, mlp_norm, mlp_norm_bias;
  std::vector<float> q_norm, k_norm;                 // QK-norm, else empty
  PackedMatrix qkv;                                  // rows: q, k, v
  PackedMatrix o;
  PackedMatrix gate_up;                              // rows: gate, up (or up alone, not gated)
  PackedMatrix down;
  std::vector<float> qkv_bias, o_bias, gate_up_bias, down_bias;
};
struct TransformerWeights {
  model::ModelConfig config;
  PackedMatrix embedding;                            // [vocab, hidden]
  std::vector<float> positions;                      // GPT-2: [max_position, hidden]
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm, final_norm_bias;
  PackedMatrix lm_head;                              // same object as embedding when tied
};

// Packs a model for `compute`. Quantised tensors keep their type under kBF16 and
// kInt8.
Result<std::shared_ptr<const TransformerWeights>> build_weights(const model::ModelConfig& config,
                                                                const model::WeightSet& weights,
                                                                Compute compute, ThreadPool& pool);

// Pages of keys and values: one page holds kAttentionBlock positions of all
// layers. Reference-counted, so sequences may share full pages of a common prefix.
// Not thread-safe; one engine owns it.
class KvPool {
 public:
  KvPool(const model::ModelConfig& config, std::int64_t pages);
  std::int64_t pages() const;
  std::int64_t free_pages() const;
  std::int64_t page_bytes() const;
  Result<std::int32_t> allocate();             // kResourceExhausted when full
  void retain(std::int32_t page);
  void release(std::int32_t page);
  float* keys(std::int32_t page, std::int64_t layer);
  float* values(std::int32_t page, std::int64_t layer);

 private:
  std::int64_t layer_floats_, layers_;
  std::vector<float> storage_;
  std::vector<std::int32_t> references_, free_;
};

// One token to run: its sequence's page table must cover `position`.
struct TokenRow {
  std::int32_t token;
  std::int32_t sequence;   // index into `page_tables`
  std::int32_t position;
  bool want_logits = false;
};

// Runs rows (any mix of prefill and decode; rows of one sequence in ascending
// position, earlier positions already in the pool or in this call) and writes
// the logits of the rows that want them, in order: logits[i, vocab]. If `hidden` is
// not null it takes the final normalised hidden states of those same rows.
class Transformer {
 public:
  Transformer(std::shared_ptr<const TransformerWeights> weights, ThreadPool& pool);
  void set_weights(std::shared_ptr<const TransformerWeights> weights);  // same config
  const TransformerWeights& weights() const { return *weights_; }

  void forward(std::span<const TokenRow> rows,
               std::span<const std::span<const std::int32_t>> page_tables, KvPool& kv,
               std::vector<float>& logits, std::vector<float>* hidden = nullptr);

 private:
  std::shared_ptr<const TransformerWeights> weights_;
  ThreadPool* pool_;
  RopeTable rope_;
  struct Scratch;
  std::shared_ptr<Scratch> scratch_;
};

}  // namespace weft::nn
