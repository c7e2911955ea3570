// Memory aligned for tiles and, when large, for huge pages.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <utility>

namespace weft::nn {

// Owns `bytes` uninitialised bytes aligned to 64, or to 2 MiB with huge pages
// asked for when larger than that: a packed model is read front to back on every
// step, and 4 KiB pages cost a TLB miss each.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t bytes) : bytes_(bytes) {
    constexpr std::size_t kHuge = std::size_t{2} << 20;
    const std::size_t alignment = bytes >= kHuge ? kHuge : 64;
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
    if (alignment == kHuge && data_) madvise(data_.get(), rounded, MADV_HUGEPAGE);
  }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_ = 0;
};

// A buffer that grows and is reused; contents are lost when it grows.
class Scratch {
 public:
  template <class T>
  T* get(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    if (bytes > buffer_.bytes()) buffer_ = AlignedBuffer(bytes + bytes / 4);
    return reinterpret_cast<T*>(buffer_.data());
  }

 private:
  AlignedBuffer buffer_;
};

}  // namespace weft::nn
