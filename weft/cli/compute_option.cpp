#include "weft/cli/compute_option.h"

#include <algorithm>

namespace weft::cli {

void add_compute_option(CLI::App& command, const std::string& flag, std::string& value) {
  command
      .add_option(flag, value,
                  "arithmetic of the products: f32, bf16, int8 (quantised weights only), or auto "
                  "= f32 for F32 files, else bf16")
      ->check(CLI::IsMember({"auto", "f32", "bf16", "int8"}))
      ->capture_default_str();
}

nn::Compute choose_compute(const std::string& value, const model::WeightSet& weights) {
  if (value == "f32") return nn::Compute::kF32;
  if (value == "bf16") return nn::Compute::kBF16;
  if (value == "int8") return nn::Compute::kInt8;
  const bool all_f32 = std::ranges::all_of(
      weights.tensors(), [](const auto& tensor) { return tensor.view.dtype == DType::kF32; });
  return all_f32 ? nn::Compute::kF32 : nn::Compute::kBF16;
}

}  // namespace weft::cli
