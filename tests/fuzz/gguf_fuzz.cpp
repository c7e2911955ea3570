// Any bytes are a GGUF file or a typed error; every number of a file that is read can be
// looked at, and the configuration that comes out is a valid one.
#include <cstdint>

#include "weft/model/gguf.h"
#include "weft/model/gguf_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using weft::model::GgufFile;
  const auto file = GgufFile::parse(std::as_bytes(std::span(data, size)), "input");
  if (!file) {
    WEFT_CHECK(!file.error().message.empty());
    return 0;
  }
  for (const std::string& key : (*file)->keys()) {
    (void)(*file)->text(key);
    (void)(*file)->integer(key);
    (void)(*file)->number(key);
    (void)(*file)->boolean(key);
    (void)(*file)->texts(key);
    (void)(*file)->integers(key);
    (void)(*file)->numbers(key);
  }
  std::vector<float> row;
  for (const weft::model::GgufTensor& tensor : (*file)->tensors()) {
    WEFT_CHECK(tensor.view.bytes() <= static_cast<std::int64_t>(size));
    row.resize(static_cast<std::size_t>(tensor.view.columns()));
    (void)weft::model::dequantize_rows(tensor.view, tensor.view.rows() - 1, tensor.view.rows(),
                                       row.data());
  }
  const auto config = weft::model::config_from_gguf(**file);
  if (!config) return 0;
  WEFT_CHECK(weft::model::validate(*config).has_value());
  if (config->layers <= 64) (void)weft::model::weights_from_gguf(*file, *config);
  return 0;
}
