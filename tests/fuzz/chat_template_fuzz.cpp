// Any text is a template or an error; any template renders a conversation or fails
// within its limits.
#include <cstdint>

#include "weft/model/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const weft::Json messages = {
      {{"role", "system"}, {"content", "Be brief."}},
      {{"role", "user"}, {"content", "Grüße, 世界 👋\n<b>'\"\\"}},
      {{"role", "assistant"},
       {"content", nullptr},
       {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", {{"x", 1.5}}}}}}}}}};
  static const weft::Json extra = {{"bos_token", "<s>"},
                                   {"tools", {{{"type", "function"}, {"n", 3}}}}};
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto chat_template = weft::model::ChatTemplate::parse(source);
  if (!chat_template) {
    WEFT_CHECK(!chat_template.error().message.empty());
    return 0;
  }
  WEFT_CHECK(chat_template->source() == source);
  const auto first = chat_template->render(messages, true, extra);
  if (source.find("strftime_now") != std::string_view::npos) return 0;
  const auto second = chat_template->render(messages, true, extra);
  WEFT_CHECK(first.has_value() == second.has_value());
  if (first) WEFT_CHECK(*first == *second);
  return 0;
}
