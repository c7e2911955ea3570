#include "weft/model/row_order.h"

#include <cstring>

namespace weft::model {
namespace {

Result<std::shared_ptr<std::vector<std::byte>>> permute(const TensorView& view, std::int64_t heads,
                                                        std::string_view tensor,
                                                        bool to_half_split) {
  const std::int64_t rows = view.shape.empty() ? 0 : view.shape[0];
  const bool vector = view.shape.size() == 1;
  if (view.shape.size() > 2 || (vector && is_quantized(view.dtype)) || heads <= 0 || rows == 0 ||
      rows % (2 * heads) != 0) {
    return fail(ErrorCode::kCorrupt,
                "tensor '{}' has {} rows, which are not {} heads of an even width", tensor, rows,
                heads);
  }
  const std::int64_t half = rows / heads / 2;
  const std::int64_t row_bytes = view.bytes() / rows;
  auto out = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(view.bytes()));
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t i = 0; i < half; ++i) {
      for (std::int64_t s = 0; s < 2; ++s) {
        const std::int64_t interleaved = head * 2 * half + 2 * i + s;
        const std::int64_t half_split = head * 2 * half + s * half + i;
        const std::int64_t from = to_half_split ? interleaved : half_split;
        const std::int64_t to = to_half_split ? half_split : interleaved;
        std::memcpy(out->data() + to * row_bytes, view.data + from * row_bytes,
                    static_cast<std::size_t>(row_bytes));
      }
    }
  }
  return out;
}

}  // namespace

Result<std::shared_ptr<std::vector<std::byte>>> half_split_rows(const TensorView& view,
                                                                std::int64_t heads,
                                                                std::string_view tensor) {
  return permute(view, heads, tensor, true);
}

Result<std::shared_ptr<std::vector<std::byte>>> interleave_rows(const TensorView& view,
                                                                std::int64_t heads,
                                                                std::string_view tensor) {
  return permute(view, heads, tensor, false);
}

}  // namespace weft::model
