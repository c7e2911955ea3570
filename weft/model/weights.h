// WeightSet: the named tensors of a model file, under canonical names.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/base/result.h"
#include "weft/base/tensor_view.h"
#include "weft/model/config.h"

namespace weft::model {

struct NamedTensor {
  std::string name;
  TensorView view;
};

// Tensors and the storage that holds their bytes (maps of files, or buffers
// where a tensor had to be permuted or split). Copies share the storage; views
// are valid while any copy lives. Safe to read from many threads.
class WeightSet {
 public:
  // A name that is there already is replaced.
  void add(NamedTensor tensor, std::shared_ptr<const void> storage);
  const TensorView* find(std::string_view name) const;
  Result<TensorView> get(std::string_view name) const;  // kNotFound names it
  const std::vector<NamedTensor>& tensors() const { return tensors_; }

 private:
  std::vector<NamedTensor> tensors_;
  std::unordered_map<std::string, std::size_t> index_;
  std::vector<std::shared_ptr<const void>> storage_;
};

// Checks that every tensor of tensor_specs(config) is there with its shape, and no
// other; errors name the tensor.
Status check_weights(const ModelConfig& config, const WeightSet& weights);

// Element conversion from F32, F16, BF16, F64 and the quantised types, which mean
// their dequantised value. `out` holds view.elements() floats; integers are kUnsupported.
Status dequantize(const TensorView& view, float* out);
// Rows [begin, end) of a matrix view; out holds (end - begin) * columns floats.
Status dequantize_rows(const TensorView& view, std::int64_t begin, std::int64_t end, float* out);
// Quantises rows of f32 to `type` with GGML's reference rounding (no importance
// matrix). `out` holds tensor_bytes(type, rows, columns).
Status quantize_rows(DType type, const float* rows_in, std::int64_t rows, std::int64_t columns,
                     std::byte* out);

}  // namespace weft::model
