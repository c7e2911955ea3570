// TensorView: where a tensor's bytes lie and what they mean, without libtorch.
// A view owns nothing; whoever made it says how long the bytes stay valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/base/dtype.h"

namespace weft {

// Row-major and contiguous: shape[0] is the slowest dimension. For quantised
// types the blocks run along the last dimension.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (std::int64_t d : shape) n *= d;
    return n;
  }
  std::int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
  std::int64_t rows() const { return columns() == 0 ? 0 : elements() / columns(); }
  std::int64_t bytes() const { return elements() / block_elements(dtype) * block_bytes(dtype); }
};

}  // namespace weft
