// Any text is a tokenizer.json or a typed error; an accepted tokenizer encodes any
// text, streams what it decodes, and survives being written and read again.
#include <cstdint>

#include "weft/base/json.h"
#include "weft/model/tokenizer.h"

namespace {

constexpr std::string_view kTexts[] = {
    "",
    "Hello, world! 12345  na\xc3\xafve\n\n\t \xe4\xbd\xa0\xe5\xa5\xbd",
    " <s>[INST]'ll \xf0\x9f\x99\x82\xf0\x9f\x99\x82 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "\xff\x80\xe4\xbd \xed\xa0\x80 broken \xc0\xaf\xf0\x9f",
};

void exercise(const weft::model::Tokenizer& tokenizer,
              const std::shared_ptr<const weft::model::Tokenizer>& shared) {
  for (const std::string_view text : kTexts) {
    for (const bool special : {false, true}) {
      const auto ids = tokenizer.encode(text, {.add_special = special, .parse_special = special});
      weft::model::StreamDecoder stream(shared, special);
      std::string streamed;
      for (const auto id : ids) {
        WEFT_CHECK(id >= 0 && id < tokenizer.vocab_size(), "id {}", id);
        streamed += stream.push(id);
        (void)tokenizer.token_bytes(id);
      }
      streamed += stream.finish();
      WEFT_CHECK(streamed == tokenizer.decode(ids, special));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = weft::model::tokenizer_from_json(text, "input");
  if (!tokenizer) {
    WEFT_CHECK(!tokenizer.error().message.empty());
    return 0;
  }
  exercise(**tokenizer, *tokenizer);
  const auto json = (*tokenizer)->to_tokenizer_json();
  if (!json) return 0;
  const auto again = weft::model::tokenizer_from_json(weft::dump_json(*json), "written");
  WEFT_CHECK(again.has_value(), "{}", again.error().message);
  for (const std::string_view each : kTexts) {
    WEFT_CHECK((*again)->encode(each) == (*tokenizer)->encode(each));
  }
  return 0;
}
