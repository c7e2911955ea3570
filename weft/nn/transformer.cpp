#include "weft/nn/transformer.h"

#include <algorithm>
#include <cmath>

namespace weft::nn {

// Buffers of one forward pass, kept for the next. Row-major [rows, width].
struct Transformer::Scratch {
  std::vector<float> x, h, qkv, attention, product, gate_up, activated;
  std::vector<std::int32_t> positions;
  std::vector<const float*> keys, values;  // of all sequences, one after the other
  std::vector<KvBlocks> sequences;
  std::vector<QueryRow> queries;
  std::vector<std::int64_t> first_block;  // of each sequence in keys and values

  void reserve(const model::ModelConfig& config, std::int64_t rows);
};

namespace {

void grow(std::vector<float>& buffer, std::int64_t size) {
  if (static_cast<std::int64_t>(buffer.size()) < size) {
    buffer.resize(static_cast<std::size_t>(size));
  }
}

// Rows of elementwise work that are worth a thread.
constexpr std::int64_t kRowGrain = 16;

}  // namespace

void Transformer::Scratch::reserve(const model::ModelConfig& config, std::int64_t rows) {
  grow(x, rows * config.hidden);
  grow(h, rows * config.hidden);
  grow(product, rows * config.hidden);
  grow(qkv, rows * (config.heads + 2 * config.kv_heads) * config.head_dim);
  grow(attention, rows * config.heads * config.head_dim);
  grow(gate_up, rows * config.intermediate * (config.gated_mlp ? 2 : 1));
  grow(activated, rows * config.intermediate);
}

Transformer::Transformer(std::shared_ptr<const TransformerWeights> weights, ThreadPool& pool,
                         std::int64_t max_positions)
    : weights_(std::move(weights)),
      pool_(&pool),
      max_positions_(max_positions > 0 ? max_positions : weights_->config.max_position),
      scratch_(std::make_unique<Scratch>()) {
  if (!weights_->config.learned_positions) {
    rope_ = make_rope_table(weights_->config, max_positions_);
  } else {
    max_positions_ = std::min(max_positions_, weights_->config.max_position);
  }
}

Transformer::~Transformer() = default;

void Transformer::set_weights(std::shared_ptr<const TransformerWeights> weights) {
  WEFT_CHECK(weights->config == weights_->config, "new weights of another shape");
  weights_ = std::move(weights);
}

void Transformer::normalize(const float* x, const std::vector<float>& weight,
                            const std::vector<float>& bias, std::int64_t rows, float* y) {
  const auto& config = weights_->config;
  const auto eps = static_cast<float>(config.norm_eps);
  if (config.norm == model::NormKind::kRms) {
    rms_norm(x, weight.data(), eps, rows, config.hidden, y, nullptr, *pool_);
  } else {
    layer_norm(x, weight.data(), bias.data(), eps, rows, config.hidden, y, nullptr, nullptr,
               *pool_);
  }
}

void Transformer::add(const float* y, std::int64_t rows) {
  const std::int64_t hidden = weights_->config.hidden;
  float* x = scratch_->x.data();
  pool_->parallel_for(rows, kRowGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * hidden; i < end * hidden; ++i) x[i] = x[i] + y[i];
  });
}

void Transformer::embed(std::span<const TokenRow> rows) {
  const auto& weights = *weights_;
  const std::int64_t hidden = weights.config.hidden;
  float* x = scratch_->x.data();
  pool_->parallel_for(static_cast<std::int64_t>(rows.size()), kRowGrain,
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t i = begin; i < end; ++i) {
                          const TokenRow& row = rows[static_cast<std::size_t>(i)];
                          float* out = x + i * hidden;
                          matrix_row(weights.embedding, row.token, out);
                          if (!weights.config.learned_positions) continue;
                          const float* p = weights.positions.data() + row.position * hidden;
                          for (std::int64_t c = 0; c < hidden; ++c) out[c] = out[c] + p[c];
                        }
                      });
}

void Transformer::attend(std::int64_t layer, std::span<const TokenRow> rows,
                         std::span<const std::span<const std::int32_t>> page_tables, KvPool& kv) {
  const auto& config = weights_->config;
  const LayerWeights& w = weights_->layers[static_cast<std::size_t>(layer)];
  Scratch& s = *scratch_;
  const auto count = static_cast<std::int64_t>(rows.size());
  const std::int64_t q_width = config.heads * config.head_dim;
  const std::int64_t k_width = config.kv_heads * config.head_dim;
  const std::int64_t ld = q_width + 2 * k_width;
  AttentionShape shape{config.heads, config.kv_heads, config.head_dim,
                       1.0F / std::sqrt(static_cast<float>(config.head_dim))};
  if (config.sliding_window > 0 &&
      (config.sliding_layers.empty() || config.sliding_layers[static_cast<std::size_t>(layer)])) {
    shape.window = config.sliding_window;
  }
  shape.layout = kv_layout(w.qkv.compute() == Compute::kBF16, config.head_dim);

  normalize(s.x.data(), w.attention_norm, w.attention_norm_bias, count, s.h.data());
  matmul(w.qkv, s.h.data(), count, config.hidden, w.qkv_bias.empty() ? nullptr : w.qkv_bias.data(),
         s.qkv.data(), ld, *pool_);
  if (config.qk_norm) {
    pool_->parallel_for(count, kRowGrain, [&](std::int64_t begin, std::int64_t end) {
      const auto eps = static_cast<float>(config.norm_eps);
      for (std::int64_t i = begin; i < end; ++i) {
        float* q = s.qkv.data() + i * ld;
        float* k = q + q_width;
        rms_norm(q, w.q_norm.data(), eps, config.heads, config.head_dim, q, nullptr, *pool_);
        rms_norm(k, w.k_norm.data(), eps, config.kv_heads, config.head_dim, k, nullptr, *pool_);
      }
    });
  }
  if (!config.learned_positions) {
    // q and k lie side by side: one call rotates the heads of both.
    rope(rope_, s.positions.data(), count, config.heads + config.kv_heads, config.head_dim,
         s.qkv.data(), ld, /*inverse=*/false, *pool_);
  }
  pool_->parallel_for(count, kRowGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const TokenRow& row = rows[static_cast<std::size_t>(i)];
      const std::int32_t page =
          page_tables[static_cast<std::size_t>(row.sequence)]
                     [static_cast<std::size_t>(row.position / kAttentionBlock)];
      const float* k = s.qkv.data() + i * ld + q_width;
      store_kv(shape, k, k + k_width, row.position % kAttentionBlock, kv.keys(page, layer),
               kv.values(page, layer));
    }
  });
  for (std::size_t sequence = 0; sequence < page_tables.size(); ++sequence) {
    auto at = static_cast<std::size_t>(s.first_block[sequence]);
    for (const std::int32_t page : page_tables[sequence]) {
      s.keys[at] = kv.keys(page, layer);
      s.values[at++] = kv.values(page, layer);
    }
  }
  nn::attention(shape, s.sequences, s.queries, *pool_);
  matmul(w.o, s.attention.data(), count, q_width, w.o_bias.empty() ? nullptr : w.o_bias.data(),
         s.product.data(), config.hidden, *pool_);
  add(s.product.data(), count);
}

void Transformer::feed_forward(std::int64_t layer, std::int64_t rows) {
  const auto& config = weights_->config;
  const LayerWeights& w = weights_->layers[static_cast<std::size_t>(layer)];
  Scratch& s = *scratch_;
  const std::int64_t width = config.intermediate * (config.gated_mlp ? 2 : 1);
  normalize(s.x.data(), w.mlp_norm, w.mlp_norm_bias, rows, s.h.data());
  matmul(w.gate_up, s.h.data(), rows, config.hidden,
         w.gate_up_bias.empty() ? nullptr : w.gate_up_bias.data(), s.gate_up.data(), width, *pool_);
  if (config.gated_mlp) {
    silu_mul(s.gate_up.data(), rows, config.intermediate, s.activated.data(), *pool_);
  } else {
    gelu(s.gate_up.data(), rows * config.intermediate,
         config.activation == model::Activation::kGeluTanh, s.activated.data(), *pool_);
  }
  matmul(w.down, s.activated.data(), rows, config.intermediate,
         w.down_bias.empty() ? nullptr : w.down_bias.data(), s.product.data(), config.hidden,
         *pool_);
  add(s.product.data(), rows);
}

void Transformer::forward(std::span<const TokenRow> rows,
                          std::span<const std::span<const std::int32_t>> page_tables, KvPool& kv,
                          std::vector<float>& logits, std::vector<float>* hidden) {
  if (rows.empty()) return;
  const auto& config = weights_->config;
  Scratch& s = *scratch_;
  const auto count = static_cast<std::int64_t>(rows.size());
  const std::int64_t q_width = config.heads * config.head_dim;
  const std::int64_t ld = q_width + 2 * config.kv_heads * config.head_dim;
  s.reserve(config, count);

  s.first_block.clear();
  std::int64_t blocks = 0;
  for (const auto& table : page_tables) {
    s.first_block.push_back(blocks);
    blocks += static_cast<std::int64_t>(table.size());
  }
  s.keys.resize(static_cast<std::size_t>(blocks));
  s.values.resize(static_cast<std::size_t>(blocks));
  s.sequences.clear();
  for (std::size_t i = 0; i < page_tables.size(); ++i) {
    const auto first = static_cast<std::size_t>(s.first_block[i]);
    s.sequences.push_back({std::span(s.keys).subspan(first, page_tables[i].size()),
                           std::span(s.values).subspan(first, page_tables[i].size())});
  }
  s.positions.clear();
  s.queries.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    const TokenRow& row = rows[static_cast<std::size_t>(i)];
    const auto sequence = static_cast<std::size_t>(row.sequence);
    WEFT_CHECK(row.token >= 0 && row.token < config.vocab_size, "token {}", row.token);
    WEFT_CHECK(sequence < page_tables.size() && row.position >= 0 &&
                   row.position < max_positions_ &&
                   row.position / kAttentionBlock <
                       static_cast<std::int64_t>(page_tables[sequence].size()),
               "position {} of sequence {} is outside its page table", row.position, row.sequence);
    s.positions.push_back(row.position);
    s.queries.push_back({s.qkv.data() + i * ld, s.attention.data() + i * q_width, nullptr,
                         row.sequence, row.position});
  }

  embed(rows);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    attend(layer, rows, page_tables, kv);
    feed_forward(layer, count);
  }

  // The rows that want logits move to the front of x, in order.
  std::int64_t wanted = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!rows[static_cast<std::size_t>(i)].want_logits) continue;
    if (wanted != i) {
      std::copy_n(s.x.data() + i * config.hidden, config.hidden,
                  s.x.data() + wanted * config.hidden);
    }
    ++wanted;
  }
  if (wanted == 0) return;
  grow(logits, wanted * config.vocab_size);
  float* states = s.h.data();
  if (hidden != nullptr) {
    grow(*hidden, wanted * config.hidden);
    states = hidden->data();
  }
  normalize(s.x.data(), weights_->final_norm, weights_->final_norm_bias, wanted, states);
  matmul(weights_->lm_head, states, wanted, config.hidden, nullptr, logits.data(),
         config.vocab_size, *pool_);
}

}  // namespace weft::nn
