// Any bytes are a safetensors file or a typed error; the tensors of a file that is
// read lie inside it, one after another, and can be looked at.
#include <cstdint>

#include "weft/model/safetensors.h"
#include "weft/model/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using weft::model::SafetensorsFile;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = SafetensorsFile::parse(bytes, "input");
  if (!file) {
    WEFT_CHECK(!file.error().message.empty());
    return 0;
  }
  const std::byte* at = nullptr;
  std::vector<float> row;
  for (const weft::model::NamedTensor& tensor : (*file)->tensors()) {
    const weft::TensorView& view = tensor.view;
    WEFT_CHECK(at == nullptr || view.data == at);
    at = view.data + view.bytes();
    WEFT_CHECK(view.data >= bytes.data() && at <= bytes.data() + bytes.size());
    if (view.elements() == 0) continue;
    row.resize(static_cast<std::size_t>(view.columns()));
    (void)weft::model::dequantize_rows(view, view.rows() - 1, view.rows(), row.data());
  }
  return 0;
}
