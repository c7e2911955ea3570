// Any text is a JSON document or a typed error; what was read dumps to a text
// that reads back to the same.
#include <cstdint>

#include "weft/base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = weft::parse_json(text, "input");
  if (!json) {
    WEFT_CHECK(!json.error().message.empty());
    return 0;
  }
  const std::string dumped = weft::dump_json(*json);
  const auto again = weft::parse_json(dumped, "dump");
  WEFT_CHECK(again.has_value(), "{}", dumped);
  WEFT_CHECK(weft::dump_json(*again) == dumped, "{}", dumped);
  for (const auto& [key, value] : json->items()) {
    if (!json->is_object()) break;
    (void)weft::json_field<std::string>(*json, key);
    (void)weft::json_field<std::int64_t>(*json, key);
    (void)weft::json_field<float>(*json, key);
  }
  return 0;
}
