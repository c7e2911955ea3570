// Chat templates: the subset of Jinja that published models use.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"

namespace weft::model {

// A compiled template. Immutable; render() may be called from many threads. It
// never runs code, reads files or loops past its step limit.
class ChatTemplate {
 public:
  // Errors name line and column and the construct that is not supported.
  static Result<ChatTemplate> parse(std::string_view source);

  // `messages` is OpenAI's array ({role, content, tool_calls, ...}); `extra`
  // adds variables (tools, bos_token, eos_token, enable_thinking, ...).
  // raise_exception("...") in the template becomes kInvalidArgument with its text.
  Result<std::string> render(const Json& messages, bool add_generation_prompt,
                             const Json& extra = Json::object()) const;

  const std::string& source() const;

 private:
  struct Program;
  std::shared_ptr<const Program> program_;
};

}  // namespace weft::model
