#include "weft/model/value_check.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>

namespace weft::model {
namespace {

Result<TensorValues> values_of(const NamedTensor& tensor) {
  TensorValues out;
  out.name = tensor.name;
  out.elements = tensor.view.elements();
  std::vector<float> row(static_cast<std::size_t>(tensor.view.columns()));
  bool first = true;
  double squares = 0;
  for (std::int64_t r = 0; r < tensor.view.rows(); ++r) {
    if (auto status = dequantize_rows(tensor.view, r, r + 1, row.data()); !status) {
      return std::unexpected(status.error().in(tensor.name));
    }
    for (const float x : row) {
      if (std::isnan(x)) {
        ++out.nan;
      } else if (std::isinf(x)) {
        ++out.infinite;
      } else {
        out.zero += x == 0.0F ? 1 : 0;
        out.min = first ? x : std::min(out.min, x);
        out.max = first ? x : std::max(out.max, x);
        first = false;
        squares += static_cast<double>(x) * static_cast<double>(x);
      }
    }
  }
  if (out.elements > 0) out.mean_square = squares / static_cast<double>(out.elements);
  return out;
}

}  // namespace

Result<std::vector<TensorValues>> check_values(const WeightSet& weights, ThreadPool& pool) {
  const std::vector<NamedTensor>& tensors = weights.tensors();
  std::vector<TensorValues> out(tensors.size());
  std::mutex mutex;
  std::optional<Error> failed;
  pool.parallel_for(static_cast<std::int64_t>(tensors.size()), 1,
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t i = begin; i < end; ++i) {
                        auto values = values_of(tensors[static_cast<std::size_t>(i)]);
                        const std::lock_guard lock(mutex);
                        if (values) {
                          out[static_cast<std::size_t>(i)] = std::move(*values);
                        } else if (!failed) {
                          failed = std::move(values).error();
                        }
                      }
                    });
  if (failed) return std::unexpected(std::move(*failed));
  return out;
}

std::vector<std::string> findings(const std::vector<TensorValues>& values) {
  std::vector<std::string> out;
  for (const TensorValues& tensor : values) {
    if (tensor.nan + tensor.infinite > 0) {
      out.push_back(fmt::format("{} holds {} NaN and {} infinite values of {}", tensor.name,
                                tensor.nan, tensor.infinite, tensor.elements));
    } else if (tensor.zero == tensor.elements && !tensor.name.ends_with(".bias")) {
      out.push_back(fmt::format("all {} values of {} are zero", tensor.elements, tensor.name));
    }
  }
  return out;
}

}  // namespace weft::model
