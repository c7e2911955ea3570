#include "weft/train/parameter_arena.h"

#include <sys/mman.h>

#include <algorithm>

namespace weft::train {

void ParameterArena::Floats::Unmap::operator()(float* data) const { munmap(data, bytes); }

ParameterArena::Floats::Floats(std::int64_t count) : count_(static_cast<std::size_t>(count)) {
  if (count == 0) return;
  const std::size_t bytes = count_ * sizeof(float);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  WEFT_CHECK(data != MAP_FAILED, "out of memory: {} bytes of parameters", bytes);
  madvise(data, bytes, MADV_HUGEPAGE);
  data_ = std::unique_ptr<float, Unmap>(static_cast<float*>(data), Unmap{bytes});
}

void ParameterArena::add_stack(std::vector<std::string> names, std::vector<std::int64_t> rows,
                               std::int64_t columns) {
  constexpr std::int64_t kAlignment = 16;  // floats: one cache line
  size_ = (size_ + kAlignment - 1) / kAlignment * kAlignment;
  ParameterStack stack{
      .names = names, .begin = size_, .rows = 0, .columns = columns, .decay = columns > 1};
  for (std::size_t i = 0; i < names.size(); ++i) {
    ParameterEntry entry{
        .name = std::move(names[i]), .shape = {rows[i]}, .begin = size_, .size = rows[i] * columns};
    if (columns > 1) entry.shape.push_back(columns);
    size_ += entry.size;
    stack.rows += rows[i];
    entries_.push_back(std::move(entry));
  }
  if (!ranges_.empty() && ranges_.back().decay == stack.decay) {
    ranges_.back().end = size_;
  } else {
    ranges_.push_back({.begin = stack.begin, .end = size_, .decay = stack.decay});
  }
  stacks_.push_back(std::move(stack));
}

ParameterArena::ParameterArena(const model::ModelConfig& config, bool value_head) {
  const std::int64_t q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  const bool norm_bias = config.norm == model::NormKind::kLayer;
  const auto norm = [&](const std::string& name) {
    add_stack({name + ".weight"}, {config.hidden}, 1);
    if (norm_bias) add_stack({name + ".bias"}, {config.hidden}, 1);
  };
  const auto linear = [&](const std::string& prefix, const std::vector<std::string>& names,
                          const std::vector<std::int64_t>& rows, std::int64_t columns, bool bias) {
    std::vector<std::string> weights, biases;
    for (const std::string& name : names) {
      weights.push_back(prefix + name + ".weight");
      biases.push_back(prefix + name + ".bias");
    }
    add_stack(std::move(weights), rows, columns);
    if (bias) add_stack(std::move(biases), rows, 1);
  };
  add_stack({"model.embed_tokens.weight"}, {config.vocab_size}, config.hidden);
  if (config.learned_positions) {
    add_stack({"model.embed_positions.weight"}, {config.max_position}, config.hidden);
  }
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    norm(layer + "input_layernorm");
    linear(layer + "self_attn.", {"q_proj", "k_proj", "v_proj"}, {q, kv, kv}, config.hidden,
           config.qkv_bias);
    if (config.qk_norm) {
      add_stack({layer + "self_attn.q_norm.weight"}, {config.head_dim}, 1);
      add_stack({layer + "self_attn.k_norm.weight"}, {config.head_dim}, 1);
    }
    linear(layer + "self_attn.", {"o_proj"}, {config.hidden}, q, config.attention_out_bias);
    norm(layer + "post_attention_layernorm");
    if (config.gated_mlp) {
      linear(layer + "mlp.", {"gate_proj", "up_proj"}, {config.intermediate, config.intermediate},
             config.hidden, config.mlp_bias);
    } else {
      linear(layer + "mlp.", {"up_proj"}, {config.intermediate}, config.hidden, config.mlp_bias);
    }
    linear(layer + "mlp.", {"down_proj"}, {config.hidden}, config.intermediate, config.mlp_bias);
  }
  norm("model.norm");
  if (!config.tie_embeddings) add_stack({"lm_head.weight"}, {config.vocab_size}, config.hidden);
  if (value_head) {
    add_stack({"value_head.weight"}, {config.hidden}, 1);
    add_stack({"value_head.bias"}, {1}, 1);
  }
  values_ = Floats(size_);
  gradients_ = Floats(size_);
  m_ = Floats(size_);
  v_ = Floats(size_);
}

std::int64_t ParameterArena::parameters() const {
  std::int64_t total = 0;
  for (const ParameterEntry& entry : entries_) total += entry.size;
  return total;
}

const ParameterEntry* ParameterArena::find(std::string_view name) const {
  const auto at = std::ranges::find(entries_, name, &ParameterEntry::name);
  return at == entries_.end() ? nullptr : &*at;
}

const ParameterStack* ParameterArena::stack(std::string_view first_name) const {
  const auto at = std::ranges::find_if(
      stacks_, [&](const ParameterStack& s) { return s.names.front() == first_name; });
  return at == stacks_.end() ? nullptr : &*at;
}

std::vector<model::NamedTensor> ParameterArena::views(std::span<const float> array,
                                                      std::string_view prefix) const {
  std::vector<model::NamedTensor> all;
  for (const ParameterEntry& entry : entries_) {
    all.push_back({std::string(prefix) + entry.name,
                   {.data = reinterpret_cast<const std::byte*>(array.data() + entry.begin),
                    .dtype = DType::kF32,
                    .shape = entry.shape}});
  }
  return all;
}

}  // namespace weft::train
