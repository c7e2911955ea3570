// KvPool: pages of keys and values, handed out by reference count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "weft/base/result.h"
#include "weft/model/config.h"

namespace weft::nn {

// One page holds kAttentionBlock positions of all layers, in the layout that
// nn::attention reads (KvBlocks). Several sequences may hold a full page of a
// common prefix; a page that is held twice is never written. The memory is
// reserved at once and touched only when a page is first used.
// Not thread-safe; one engine owns it.
class KvPool {
 public:
  KvPool(const model::ModelConfig& config, std::int64_t pages);

  std::int64_t pages() const { return static_cast<std::int64_t>(references_.size()); }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t page_bytes() const { return page_bytes(layers_, layer_floats_); }
  static std::int64_t page_bytes(const model::ModelConfig& config);

  // A page with one reference; kResourceExhausted when none is free.
  Result<std::int32_t> allocate();
  void retain(std::int32_t page);
  // Drops one reference; the last one frees the page.
  void release(std::int32_t page);
  std::int32_t references(std::int32_t page) const;
  // Copies the contents of `from` (all layers) into `to`.
  void copy(std::int32_t from, std::int32_t to);

  // [kv_heads, head_dim, kAttentionBlock] and [kv_heads, kAttentionBlock, head_dim].
  float* keys(std::int32_t page, std::int64_t layer) {
    return storage_.get() + (page * layers_ + layer) * 2 * layer_floats_;
  }
  float* values(std::int32_t page, std::int64_t layer) { return keys(page, layer) + layer_floats_; }

 private:
  static std::int64_t page_bytes(std::int64_t layers, std::int64_t layer_floats) {
    return layers * 2 * layer_floats * static_cast<std::int64_t>(sizeof(float));
  }
  struct Unmap {
    std::size_t bytes;
    void operator()(float* data) const;
  };
  std::int64_t layers_, layer_floats_;
  std::unique_ptr<float, Unmap> storage_;
  std::vector<std::int32_t> references_, free_;
};

}  // namespace weft::nn
