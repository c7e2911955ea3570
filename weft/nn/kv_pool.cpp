#include "weft/nn/kv_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "weft/nn/attention.h"

namespace weft::nn {

void KvPool::Unmap::operator()(float* data) const { ::munmap(data, bytes); }

std::int64_t KvPool::page_bytes(const model::ModelConfig& config) {
  return page_bytes(config.layers, config.kv_heads * config.head_dim * kAttentionBlock);
}

// Not in huge pages: touching new ones made sampling into new pages a sixth slower.
KvPool::KvPool(const model::ModelConfig& config, std::int64_t pages)
    : layers_(config.layers),
      layer_floats_(config.kv_heads * config.head_dim * kAttentionBlock),
      storage_(nullptr, Unmap{0}) {
  WEFT_CHECK(pages > 0 && pages < (std::int64_t{1} << 31), "{} pages", pages);
  const auto bytes = static_cast<std::size_t>(pages * page_bytes());
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  WEFT_CHECK(data != MAP_FAILED, "no address space for {} bytes of keys and values", bytes);
  storage_ = std::unique_ptr<float, Unmap>(static_cast<float*>(data), Unmap{bytes});
  references_.assign(static_cast<std::size_t>(pages), 0);
  free_.reserve(static_cast<std::size_t>(pages));
  // Lowest page on top: a pool that is never full touches little memory.
  for (std::int64_t page = pages; page-- > 0;) free_.push_back(static_cast<std::int32_t>(page));
}

Result<std::int32_t> KvPool::allocate() {
  if (free_.empty()) {
    return fail(ErrorCode::kResourceExhausted, "all {} pages of the KV pool are in use", pages());
  }
  const std::int32_t page = free_.back();
  free_.pop_back();
  WEFT_CHECK(references_[static_cast<std::size_t>(page)] == 0, "free page {} is held", page);
  references_[static_cast<std::size_t>(page)] = 1;
  return page;
}

void KvPool::retain(std::int32_t page) {
  auto& count = references_.at(static_cast<std::size_t>(page));
  WEFT_CHECK(count > 0, "page {} is free", page);
  ++count;
}

void KvPool::release(std::int32_t page) {
  auto& count = references_.at(static_cast<std::size_t>(page));
  WEFT_CHECK(count > 0, "page {} is released twice", page);
  if (--count == 0) free_.push_back(page);
}

std::int32_t KvPool::references(std::int32_t page) const {
  return references_.at(static_cast<std::size_t>(page));
}

void KvPool::copy(std::int32_t from, std::int32_t to) {
  std::memcpy(keys(to, 0), keys(from, 0), static_cast<std::size_t>(page_bytes()));
}

}  // namespace weft::nn
