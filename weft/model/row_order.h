// The two orders of the rows of q and k: rotary pairs interleaved (GGUF `llama`,
// llama2.c) or half-split (Hugging Face, and everywhere inside Weft).
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "weft/base/result.h"
#include "weft/base/tensor_view.h"

namespace weft::model {

// A copy with row (head, 2 i + s) moved to row (head, s * D/2 + i), where D is the
// rows of a head; whole rows move, so quantised blocks keep their bytes. A vector (a
// bias) is a matrix of one column. Errors name `tensor`.
Result<std::shared_ptr<std::vector<std::byte>>> half_split_rows(const TensorView& view,
                                                                std::int64_t heads,
                                                                std::string_view tensor);
// The inverse: half-split to interleaved.
Result<std::shared_ptr<std::vector<std::byte>>> interleave_rows(const TensorView& view,
                                                                std::int64_t heads,
                                                                std::string_view tensor);

}  // namespace weft::model
