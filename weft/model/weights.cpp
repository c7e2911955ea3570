#include "weft/model/weights.h"

namespace weft::model {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

void WeightSet::add(NamedTensor tensor, std::shared_ptr<const void> storage) {
  if (storage != nullptr && (storage_.empty() || storage_.back() != storage)) {
    storage_.push_back(std::move(storage));
  }
  const auto [it, fresh] = index_.emplace(tensor.name, tensors_.size());
  if (fresh) {
    tensors_.push_back(std::move(tensor));
  } else {
    tensors_[it->second] = std::move(tensor);
  }
}

const TensorView* WeightSet::find(std::string_view name) const {
  const auto it = index_.find(std::string(name));
  return it == index_.end() ? nullptr : &tensors_[it->second].view;
}

Result<TensorView> WeightSet::get(std::string_view name) const {
  const TensorView* view = find(name);
  if (view == nullptr) return fail(ErrorCode::kNotFound, "the model has no tensor '{}'", name);
  return *view;
}

Status check_weights(const ModelConfig& config, const WeightSet& weights) {
  const std::vector<TensorSpec> specs = tensor_specs(config);
  for (const TensorSpec& spec : specs) {
    const TensorView* view = weights.find(spec.name);
    if (view == nullptr) {
      return fail(ErrorCode::kCorrupt, "the tensor '{}' {} is missing", spec.name,
                  shape_text(spec.shape));
    }
    if (view->shape != spec.shape) {
      return fail(ErrorCode::kCorrupt, "the tensor '{}' has shape {}; the configuration needs {}",
                  spec.name, shape_text(view->shape), shape_text(spec.shape));
    }
  }
  if (weights.tensors().size() > specs.size()) {
    std::unordered_map<std::string_view, bool> known;
    for (const TensorSpec& spec : specs) known[spec.name] = true;
    for (const NamedTensor& tensor : weights.tensors()) {
      if (!known.contains(tensor.name)) {
        return fail(ErrorCode::kUnsupported,
                    "the tensor '{}' {} has no place in a {} model of this configuration",
                    tensor.name, shape_text(tensor.view.shape), to_string(config.family));
      }
    }
  }
  return {};
}

}  // namespace weft::model
