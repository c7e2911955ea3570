// Any bytes are a llama2.c checkpoint or a typed error, and, after four bytes that say
// how many tokens its model has, a tokenizer.bin or a typed error. Of a checkpoint that
// is read every number can be looked at; a tokenizer encodes any text.
#include <cstdint>
#include <cstring>

#include "weft/model/llama2c.h"
#include "weft/model/tokenizer.h"

namespace {

using namespace weft::model;

void read_checkpoint(std::span<const std::byte> bytes) {
  const auto model = parse_llama2c(bytes, nullptr, "input");
  if (!model) {
    WEFT_CHECK(!model.error().message.empty());
    return;
  }
  WEFT_CHECK(validate(model->config).has_value());
  WEFT_CHECK(check_weights(model->config, model->weights).has_value());
  std::int64_t held = 0;
  std::vector<float> row;
  for (const NamedTensor& tensor : model->weights.tensors()) {
    held += tensor.view.bytes();
    row.resize(static_cast<std::size_t>(tensor.view.columns()));
    for (const std::int64_t at : {std::int64_t{0}, tensor.view.rows() - 1}) {
      WEFT_CHECK(dequantize_rows(tensor.view, at, at + 1, row.data()).has_value());
    }
  }
  WEFT_CHECK(held <= static_cast<std::int64_t>(bytes.size()));
}

void read_tokenizer(std::string_view bytes) {
  std::int32_t tokens = 0;
  if (bytes.size() < sizeof tokens) return;
  std::memcpy(&tokens, bytes.data(), sizeof tokens);
  bytes.remove_prefix(sizeof tokens);
  const auto tokenizer = tokenizer_from_llama2c(bytes, tokens, "input");
  if (!tokenizer) {
    WEFT_CHECK(!tokenizer.error().message.empty());
    return;
  }
  const std::string_view own = bytes.substr(0, 4096);  // a text that holds the tokens
  for (const std::string_view text :
       {std::string_view("  Once upon a time \xe7\x8c\xab \xe4\xbd \xff"), own}) {
    StreamDecoder stream(*tokenizer);
    std::string streamed;
    const auto ids = (*tokenizer)->encode(text, {.parse_special = true});
    for (const TokenId id : ids) {
      WEFT_CHECK(id >= 0 && id < tokens, "id {}", id);
      streamed += stream.push(id);
    }
    streamed += stream.finish();
    WEFT_CHECK(streamed == (*tokenizer)->decode(ids));
  }
  for (TokenId id = -1; id <= tokens; ++id) (void)(*tokenizer)->token_bytes(id);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read_checkpoint(std::as_bytes(std::span(data, size)));
  read_tokenizer({reinterpret_cast<const char*>(data), size});
  return 0;
}
