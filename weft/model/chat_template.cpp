#include "weft/model/chat_template.h"

#include <map>
#include <utility>

#include "weft/model/jinja_ast.h"
#include "weft/model/jinja_interpreter.h"
#include "weft/model/jinja_lexer.h"
#include "weft/model/jinja_text.h"
#include "weft/model/jinja_value.h"
#include "weft/model/tokenizer.h"

namespace weft::model {
namespace {

constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;

std::unexpected<Error> located(const jinja::Failure& failure, std::string_view source) {
  if (failure.by_template || failure.offset == jinja::Failure::kNoOffset) {
    return std::unexpected(Error{failure.code, failure.message});
  }
  const auto place = jinja::position_of(source, failure.offset);
  return fail(failure.code, "chat template, line {}, column {}: {}", place.line, place.column,
              failure.message);
}

jinja::Value from_json(const Json& json, jinja::Budget& budget) {
  budget.take_bytes(sizeof(jinja::Value));
  switch (json.type()) {
    case Json::value_t::boolean:
      return jinja::Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return jinja::Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_unsigned:
      return jinja::Value::integer(json.get<std::uint64_t>());
    case Json::value_t::number_float:
      return jinja::Value::real(json.get<double>());
    case Json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      budget.take_bytes(static_cast<std::int64_t>(text.size()));
      if (!jinja::is_valid_utf8(text))
        jinja::raise("a string of the conversation is not valid UTF-8");
      return jinja::Value::string(text);
    }
    case Json::value_t::array: {
      std::vector<jinja::Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(item, budget));
      return jinja::Value::sequence(jinja::Kind::kList, std::move(items));
    }
    case Json::value_t::object: {
      jinja::Dict dict;
      for (const auto& [key, item] : json.items()) {
        budget.take_bytes(static_cast<std::int64_t>(2 * key.size() + 64));
        if (!jinja::is_valid_utf8(key))
          jinja::raise("a key of the conversation is not valid UTF-8");
        dict.set(jinja::Value::string(key), from_json(item, budget));
      }
      return jinja::Value::dict(std::move(dict));
    }
    default:
      return jinja::Value::none();
  }
}

// The first of a message's names for its reasoning that is set, under all names.
void alias_reasoning(jinja::Dict& message) {
  const jinja::Value* reasoning = nullptr;
  for (std::string_view name : {"reasoning_content", "thinking", "reasoning"}) {
    if (reasoning == nullptr) reasoning = message.find(name);
  }
  if (reasoning == nullptr) return;
  const jinja::Value value = *reasoning;
  jinja::Dict out;
  const jinja::Value* thinking = message.find(std::string_view("thinking"));
  out.set(jinja::Value::string("thinking"), thinking != nullptr ? *thinking : value);
  for (auto& [key, item] : message.items) out.set(key, item);
  out.set(jinja::Value::string("reasoning_content"), value);
  message = std::move(out);
}

jinja::Value convert_messages(const Json& messages, jinja::Budget& budget) {
  std::vector<jinja::Value> out;
  std::size_t index = 0;
  for (const auto& message : messages) {
    if (!message.is_object())
      jinja::raise("messages[{}] must be an object with role and content", index);
    ++index;
    jinja::Dict dict;
    for (const auto& [key, value] : message.items()) {
      if (value.is_null()) continue;
      if (!jinja::is_valid_utf8(key)) jinja::raise("a key of the conversation is not valid UTF-8");
      dict.set(jinja::Value::string(key), from_json(value, budget));
    }
    alias_reasoning(dict);
    out.push_back(jinja::Value::dict(std::move(dict)));
  }
  return jinja::Value::sequence(jinja::Kind::kList, std::move(out));
}

}  // namespace

struct ChatTemplate::Program {
  std::string source;
  jinja::Program program;
};

const std::string& ChatTemplate::source() const { return program_->source; }

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return fail(ErrorCode::kResourceExhausted, "chat template of {} bytes, more than 1 MiB",
                source.size());
  }
  if (!jinja::is_valid_utf8(source)) {
    return fail(ErrorCode::kInvalidArgument, "chat template is not valid UTF-8");
  }
  const std::string normalized = jinja::normalize_source(source);
  try {
    auto program = std::make_shared<Program>();
    program->source = source;
    program->program = jinja::parse_program(normalized);
    ChatTemplate out;
    out.program_ = std::move(program);
    return out;
  } catch (const jinja::Failure& failure) {
    return located(failure, normalized);
  }
}

Result<std::string> ChatTemplate::render(const Json& messages, bool add_generation_prompt,
                                         const Json& extra) const {
  const auto& program = program_->program;
  if (!messages.is_array()) {
    return fail(ErrorCode::kInvalidArgument,
                "messages must be an array of {{role, content}} objects");
  }
  jinja::Budget budget;
  try {
    std::map<std::string, jinja::Value> variables;
    variables["tools"] = variables["documents"] = jinja::Value::none();
    if (extra.is_object()) {
      for (const auto& [name, value] : extra.items()) {
        // Only what the template reads is worth converting.
        if (program.ids.contains(name)) variables[name] = from_json(value, budget);
      }
    }
    variables["messages"] = convert_messages(messages, budget);
    variables["add_generation_prompt"] = jinja::Value::boolean(add_generation_prompt);
    jinja::Interpreter interpreter(program, budget);
    return interpreter.run(variables);
  } catch (const jinja::Failure& failure) {
    return located(failure, program.source);
  }
}

Json template_variables(const Tokenizer& tokenizer) {
  Json out = Json::object();
  if (tokenizer.bos() >= 0) out["bos_token"] = tokenizer.token_bytes(tokenizer.bos());
  if (!tokenizer.eos().empty()) out["eos_token"] = tokenizer.token_bytes(tokenizer.eos().front());
  return out;
}

}  // namespace weft::model
