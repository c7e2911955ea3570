#include "weft/nn/autograd/buffer_pool.h"

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "weft/base/result.h"

namespace weft::nn::autograd {

struct BufferPool::State {
  std::mutex mutex;
  std::map<std::size_t, std::vector<void*>> free;  // by size class
  std::int64_t bytes = 0;
  std::int64_t idle_bytes = 0;

  // The smallest idle buffer of `size` to 1.5 x `size` bytes, or null. `size` becomes its own.
  void* take(std::size_t& size) {
    for (auto it = free.lower_bound(size); it != free.end() && it->first <= size + size / 2; ++it) {
      if (it->second.empty()) continue;
      void* data = it->second.back();
      it->second.pop_back();
      size = it->first;
      idle_bytes -= static_cast<std::int64_t>(size);
      return data;
    }
    return nullptr;
  }
  // Frees idle buffers, the largest first, until at most `limit` bytes are idle: batches
  // whose sizes keep changing would otherwise leave a set of buffers of every size.
  void trim(std::int64_t limit) {
    for (auto it = free.rbegin(); it != free.rend() && idle_bytes > limit; ++it) {
      while (!it->second.empty() && idle_bytes > limit) {
        std::free(it->second.back());
        it->second.pop_back();
        idle_bytes -= static_cast<std::int64_t>(it->first);
        bytes -= static_cast<std::int64_t>(it->first);
      }
    }
  }
  ~State() {
    for (auto& [size, buffers] : free) {
      for (void* buffer : buffers) std::free(buffer);
    }
  }
};

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::int64_t kIdleBytes = std::int64_t{1} << 30;  // kept idle while others are made

// Eight classes for each power of two, so that batches of nearly one size share buffers.
std::size_t size_class(std::size_t bytes) {
  const std::size_t step = std::max<std::size_t>(std::bit_floor(bytes) / 8, 4096);
  return (bytes + step - 1) / step * step;
}

}  // namespace

BufferPool::BufferPool() : state_(std::make_shared<State>()) {}

at::Tensor BufferPool::empty(std::initializer_list<std::int64_t> shape) {
  std::size_t count = 1;
  for (const std::int64_t d : shape) count *= static_cast<std::size_t>(d);
  std::size_t size = size_class(std::max<std::size_t>(count * sizeof(float), 64));
  void* data = nullptr;
  {
    const std::lock_guard lock(state_->mutex);
    data = state_->take(size);
    if (data == nullptr) {
      state_->trim(kIdleBytes);
      state_->bytes += static_cast<std::int64_t>(size);
    }
  }
  if (data == nullptr) {
    const std::size_t alignment = size >= kHugePage ? kHugePage : 4096;
    const std::size_t padded = (size + alignment - 1) / alignment * alignment;
    data = std::aligned_alloc(alignment, padded);
    WEFT_CHECK(data != nullptr, "out of memory: {} bytes of activations", size);
    if (size >= kHugePage) madvise(data, padded, MADV_HUGEPAGE);
  }
  return at::from_blob(
      data, at::IntArrayRef(shape.begin(), shape.size()),
      [state = state_, size](void* memory) {
        const std::lock_guard lock(state->mutex);
        state->free[size].push_back(memory);
        state->idle_bytes += static_cast<std::int64_t>(size);
      },
      at::TensorOptions().dtype(at::kFloat));
}

std::int64_t BufferPool::bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes;
}

}  // namespace weft::nn::autograd
