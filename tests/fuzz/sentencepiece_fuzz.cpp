// Any bytes are a sentencepiece model or a typed error; an accepted model encodes
// any text and decodes any ids.
#include <cstdint>

#include "weft/model/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = weft::model::tokenizer_from_sentencepiece(bytes, "input");
  if (!tokenizer) {
    WEFT_CHECK(!tokenizer.error().message.empty());
    return 0;
  }
  // The model's own bytes are a text that holds its pieces.
  const std::string_view own = bytes.substr(0, std::min<std::size_t>(size, 4096));
  for (const std::string_view text : {std::string_view("  Hello world \xe4\xbd \xff"), own}) {
    const auto ids = (*tokenizer)->encode(text, {.parse_special = true});
    weft::model::StreamDecoder stream(*tokenizer);
    std::string streamed;
    for (const auto id : ids) {
      WEFT_CHECK(id >= 0 && id < (*tokenizer)->vocab_size(), "id {}", id);
      streamed += stream.push(id);
    }
    streamed += stream.finish();
    WEFT_CHECK(streamed == (*tokenizer)->decode(ids));
  }
  for (weft::model::TokenId id = -1; id <= (*tokenizer)->vocab_size(); ++id) {
    (void)(*tokenizer)->token_bytes(id);
  }
  return 0;
}
