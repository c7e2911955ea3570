// Chat templates: the subset of Jinja that published models use.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "weft/base/json.h"
#include "weft/base/result.h"

namespace weft::model {

class Tokenizer;

// A compiled template, read as transformers reads it (Jinja2 with trim_blocks,
// lstrip_blocks, break and continue, {% generation %}, a plain tojson). Immutable;
// render() may be called from many threads. It runs no code, reads no files and
// stays within limits of steps (5 million), nesting (600), memory made (256 MiB)
// and output (64 MiB). docs/formats/chat-template.md lists what is understood.
class ChatTemplate {
 public:
  // Errors name line and column and the construct that is not supported.
  static Result<ChatTemplate> parse(std::string_view source);

  // `messages` is OpenAI's array ({role, content, tool_calls, ...}); `extra`
  // adds variables (tools, bos_token, eos_token, enable_thinking, ...); `tools` and
  // `documents` are none where not given. As in transformers, keys of a message
  // that are null are dropped, and `reasoning`, `thinking` and `reasoning_content`
  // stand for each other. Errors: kInvalidArgument with the template's own words
  // for raise_exception("..."), else with line and column; kResourceExhausted at a
  // limit; kUnsupported for a filter or test that is not known.
  Result<std::string> render(const Json& messages, bool add_generation_prompt,
                             const Json& extra = Json::object()) const;

  // The template as it was given.
  const std::string& source() const;

 private:
  struct Program;
  std::shared_ptr<const Program> program_;
};

// The variables that templates expect of a vocabulary: bos_token, eos_token and
// the like, as far as it has them. For `extra` of render().
Json template_variables(const Tokenizer& tokenizer);

}  // namespace weft::model
