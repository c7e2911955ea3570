// What the writers of model files take: tensors whose bytes are made one at a time,
// so that converting a model needs memory for one tensor, not for all.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weft/base/dtype.h"
#include "weft/base/result.h"
#include "weft/base/tensor_view.h"

namespace weft::model {

struct TensorSource {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  // Writes the tensor's bytes() into `out`; called once, in the order of the file.
  std::function<Status(std::span<std::byte> out)> fill;

  std::int64_t bytes() const { return TensorView{nullptr, dtype, shape}.bytes(); }
};

// A source that copies a view, which must stay valid until it is written.
TensorSource source_of(std::string name, const TensorView& view);

// Called as bytes are written: done and total of all tensors.
using WriteProgress = std::function<void(std::int64_t done, std::int64_t total)>;

}  // namespace weft::model
