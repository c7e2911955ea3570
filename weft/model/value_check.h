// Looks at every number of a model: what no digest is needed for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/base/thread_pool.h"
#include "weft/model/weights.h"

namespace weft::model {

struct TensorValues {
  std::string name;
  std::int64_t nan = 0, infinite = 0, zero = 0, elements = 0;
  float min = 0, max = 0;  // of the finite values
  double mean_square = 0;
};

// Reads all tensors, dequantised. Damage that keeps all values in range (rows
// exchanged, a matrix transposed) is not seen.
Result<std::vector<TensorValues>> check_values(const WeightSet& weights, ThreadPool& pool);

// The sentences about tensors that no trained model has: NaN, infinity, all zero.
std::vector<std::string> findings(const std::vector<TensorValues>& values);

}  // namespace weft::model
