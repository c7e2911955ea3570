// Request bodies of the OpenAI API.
#include <cmath>
#include <limits>
#include <set>

#include "weft/serve/openai_api.h"

namespace weft::serve {
namespace {

constexpr std::size_t kMaxMessages = 4096;

std::unexpected<ApiError> bad(std::string param, std::string message, std::string code = "") {
  return std::unexpected(ApiError{400, std::move(message), std::move(param), std::move(code)});
}

std::string type_of(const Json& value) {
  if (value.is_string()) return "a string";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number()) return "a number";
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  return "null";
}

ApiResult<Json> parse_body(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return bad("", "the body is empty; send a JSON object");
  }
  auto json = parse_json(body, "request body");
  if (!json) return bad("", json.error().message, "invalid_json");
  if (!json->is_object())
    return bad("", fmt::format("the body must be a JSON object, not {}", type_of(*json)));
  return std::move(*json);
}

// Reads typed fields of one object; keeps the first error.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  const Json* find(const char* key) const { return json_find(object_, key); }

  void text(const char* key, std::string& out) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_string())
      return fail(key, fmt::format("'{}' must be a string, not {}", key, type_of(*value)));
    out = value->get<std::string>();
  }
  void flag(const char* key, bool& out) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_boolean())
      return fail(key, fmt::format("'{}' must be true or false, not {}", key, type_of(*value)));
    out = value->get<bool>();
  }
  // True if the key is there and its value in [low, high].
  bool integer(const char* key, std::int64_t& out, std::int64_t low, std::int64_t high) {
    const Json* value = find(key);
    if (value == nullptr) return false;
    if (!value->is_number()) {
      fail(key, fmt::format("'{}' must be an integer, not {}", key, type_of(*value)));
      return false;
    }
    const double real = value->get<double>();
    if (std::floor(real) != real) {
      fail(key, fmt::format("'{}' must be an integer, not {}", key, real));
      return false;
    }
    const bool wide = value->is_number_unsigned() &&
                      value->get<std::uint64_t>() >
                          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (wide || std::fabs(real) > 9.2e18) {
      fail(key, fmt::format("'{}' must be from {} to {}", key, low, high));
      return false;
    }
    const std::int64_t whole =
        value->is_number_float() ? static_cast<std::int64_t>(real) : value->get<std::int64_t>();
    if (whole < low || whole > high) {
      fail(key, fmt::format("'{}' must be from {} to {}, not {}", key, low, high, whole));
      return false;
    }
    out = whole;
    return true;
  }
  void real(const char* key, float& out, double low, double high, bool open_low = false) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_number())
      return fail(key, fmt::format("'{}' must be a number, not {}", key, type_of(*value)));
    const double number = value->get<double>();
    if (!std::isfinite(number) || number < low || number > high || (open_low && number == low)) {
      return fail(key, fmt::format("'{}' must be {} {} and at most {}, not {}", key,
                                   open_low ? "above" : "at least", low, high, number));
    }
    out = static_cast<float>(number);
  }
  void fail(std::string param, std::string message) {
    if (!error_) error_ = ApiError{400, std::move(message), std::move(param), ""};
  }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const Json& object_;
  std::optional<ApiError> error_;
};

void read_stop(Fields& fields, std::vector<std::string>& stop) {
  const Json* value = fields.find("stop");
  if (value == nullptr) return;
  const Json list = value->is_string() ? Json::array({*value}) : *value;
  if (!list.is_array())
    return fields.fail("stop", "'stop' must be a string or an array of strings");
  if (list.size() > kMaxStops)
    return fields.fail("stop", fmt::format("'stop' has more than {} strings", kMaxStops));
  for (const auto& each : list) {
    if (!each.is_string())
      return fields.fail("stop", fmt::format("'stop' must hold strings, not {}", type_of(each)));
    auto text = each.get<std::string>();
    if (text.empty()) return fields.fail("stop", "'stop' must not hold an empty string");
    if (text.size() > kMaxStopBytes)
      return fields.fail("stop",
                         fmt::format("a 'stop' string is longer than {} bytes", kMaxStopBytes));
    stop.push_back(std::move(text));
  }
}

void read_logit_bias(Fields& fields, std::vector<std::pair<model::TokenId, float>>& bias) {
  const Json* value = fields.find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object())
    return fields.fail("logit_bias", "'logit_bias' must be an object of token ids and numbers");
  if (value->size() > 1024)
    return fields.fail("logit_bias", "'logit_bias' has more than 1024 tokens");
  for (const auto& [key, each] : value->items()) {
    if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != std::string::npos) {
      return fields.fail(
          "logit_bias",
          fmt::format("'logit_bias' has the key '{}', which is not a token id", key.substr(0, 40)));
    }
    const double number =
        each.is_number() ? each.get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(number >= -100 && number <= 100)) {
      return fields.fail(
          "logit_bias",
          fmt::format("'logit_bias' of token {} must be a number from -100 to 100", key));
    }
    bias.emplace_back(static_cast<model::TokenId>(std::stoi(key)), static_cast<float>(number));
  }
}

void refuse_unsupported(Fields& fields) {
  if (const Json* choice = fields.find("tool_choice");
      choice != nullptr && *choice != "none" && *choice != "auto") {
    return fields.fail("tool_choice",
                       "'tool_choice' other than \"none\" and \"auto\" is not supported yet");
  }
  for (const char* key : {"suffix", "audio", "prediction", "functions"}) {
    const Json* value = fields.find(key);
    if (value != nullptr && !(value->is_string() && value->get<std::string>().empty())) {
      return fields.fail(key, fmt::format("'{}' is not supported", key));
    }
  }
}

using constrain::ConstraintSpec;

void set_constraint(Fields& fields, ApiRequest& out, const std::string& field,
                    ConstraintSpec spec) {
  if (out.constraint) {
    return fields.fail(field, fmt::format("'{}' and '{}' both say what the reply may be; give one",
                                          out.constraint_field, field));
  }
  out.constraint = std::move(spec);
  out.constraint_field = field;
}

// A schema, expression, grammar or list of choices under `key`, as `field` in errors.
void read_guide(Fields& fields, const Json* value, const std::string& field,
                ConstraintSpec::Kind kind, ApiRequest& out) {
  if (value == nullptr) return;
  ConstraintSpec spec;
  spec.kind = kind;
  if (kind == ConstraintSpec::Kind::kJsonSchema) {
    if (value->is_string()) {
      spec.text = value->get<std::string>();
    } else if (value->is_object() || value->is_boolean()) {
      spec.text = dump_json(*value);
    } else {
      return fields.fail(field,
                         fmt::format("'{}' must be a JSON schema, not {}", field, type_of(*value)));
    }
  } else if (kind == ConstraintSpec::Kind::kChoice) {
    if (!value->is_array()) return fields.fail(field, fmt::format("'{}' must be an array", field));
    for (const auto& each : *value) {
      if (!each.is_string())
        return fields.fail(field, fmt::format("'{}' must hold strings", field));
      spec.choices.push_back(each.get<std::string>());
    }
  } else {
    if (!value->is_string())
      return fields.fail(field,
                         fmt::format("'{}' must be a string, not {}", field, type_of(*value)));
    spec.text = value->get<std::string>();
  }
  set_constraint(fields, out, field, std::move(spec));
}

void read_response_format(Fields& fields, ApiRequest& out) {
  const Json* format = fields.find("response_format");
  if (format == nullptr) return;
  const Json* type = format->is_object() ? json_find(*format, "type") : nullptr;
  if (type == nullptr || !type->is_string()) {
    return fields.fail("response_format", "'response_format' must be an object with a 'type'");
  }
  if (*type == "text") return;
  if (*type == "json_object") return set_constraint(fields, out, "response_format", {});
  if (*type != "json_schema") {
    return fields.fail("response_format",
                       fmt::format("'response_format.type' is '{}'; it must be text, json_object "
                                   "or json_schema",
                                   type->get<std::string>().substr(0, 40)));
  }
  const Json* outer = json_find(*format, "json_schema");
  const Json* schema =
      outer != nullptr && outer->is_object() ? json_find(*outer, "schema") : nullptr;
  if (schema == nullptr) {
    return fields.fail("response_format", "'response_format.json_schema.schema' is missing");
  }
  read_guide(fields, schema, "response_format", ConstraintSpec::Kind::kJsonSchema, out);
}

// OpenAI's field, vLLM's and llama.cpp's.
void read_constraint(Fields& fields, ApiRequest& out) {
  using Kind = ConstraintSpec::Kind;
  read_response_format(fields, out);
  read_guide(fields, fields.find("guided_json"), "guided_json", Kind::kJsonSchema, out);
  read_guide(fields, fields.find("guided_regex"), "guided_regex", Kind::kRegex, out);
  read_guide(fields, fields.find("guided_grammar"), "guided_grammar", Kind::kGbnf, out);
  read_guide(fields, fields.find("guided_choice"), "guided_choice", Kind::kChoice, out);
  read_guide(fields, fields.find("grammar"), "grammar", Kind::kGbnf, out);
  read_guide(fields, fields.find("json_schema"), "json_schema", Kind::kJsonSchema, out);
  const Json* outputs = fields.find("structured_outputs");
  if (outputs == nullptr) return;
  if (!outputs->is_object())
    return fields.fail("structured_outputs", "'structured_outputs' must be an object");
  for (const auto& [key, kind] :
       {std::pair("json", Kind::kJsonSchema), std::pair("regex", Kind::kRegex),
        std::pair("grammar", Kind::kGbnf), std::pair("choice", Kind::kChoice)}) {
    read_guide(fields, json_find(*outputs, key), fmt::format("structured_outputs.{}", key), kind,
               out);
  }
  if (const Json* any = json_find(*outputs, "json_object"); any != nullptr && *any == true) {
    set_constraint(fields, out, "structured_outputs.json_object", {});
  }
}

ApiResult<ApiRequest> read_shared(const Json& body, Fields& fields) {
  ApiRequest out;
  SamplingParams& s = out.sampling;
  s.max_tokens = 0;
  s.temperature = 1.0F;
  fields.text("model", out.model);
  fields.real("temperature", s.temperature, 0, 2);
  fields.real("top_p", s.top_p, 0, 1, true);
  fields.integer("top_k", s.top_k, -1, 1 << 30);
  if (s.top_k < 0) s.top_k = 0;
  fields.real("min_p", s.min_p, 0, 1);
  fields.real("repetition_penalty", s.repetition_penalty, 0, 10, true);
  fields.real("frequency_penalty", s.frequency_penalty, -2, 2);
  fields.real("presence_penalty", s.presence_penalty, -2, 2);
  fields.flag("ignore_eos", s.ignore_eos);
  fields.integer("max_tokens", s.max_tokens, 1, std::int64_t{1} << 40);
  fields.integer("max_completion_tokens", s.max_tokens, 1, std::int64_t{1} << 40);
  fields.integer("n", out.n, 1, kMaxChoices);
  std::int64_t seed = 0;
  if (fields.integer("seed", seed, std::numeric_limits<std::int64_t>::min(),
                     std::numeric_limits<std::int64_t>::max())) {
    out.seed = seed;
  }
  fields.flag("stream", out.stream);
  if (const Json* options = fields.find("stream_options")) {
    if (!options->is_object()) {
      fields.fail("stream_options", "'stream_options' must be an object");
    } else if (!out.stream) {
      fields.fail("stream_options", "'stream_options' needs \"stream\": true");
    } else {
      Fields inner(*options);
      inner.flag("include_usage", out.include_usage);
      if (inner.error()) fields.fail("stream_options", inner.error()->message);
    }
  }
  read_stop(fields, s.stop);
  read_logit_bias(fields, s.logit_bias);
  std::int64_t best_of = out.n;
  if (fields.integer("best_of", best_of, 1, kMaxChoices) && best_of != out.n) {
    fields.fail("best_of", "'best_of' other than n is not supported");
  }
  refuse_unsupported(fields);
  read_constraint(fields, out);
  if (out.constraint && s.ignore_eos) {
    fields.fail("ignore_eos", "'ignore_eos' goes against a constraint on the reply");
  }
  if (fields.error()) return std::unexpected(*fields.error());
  (void)body;
  return out;
}

ApiResult<ApiPrompt> read_ids(const Json& list) {
  ApiPrompt out;
  out.is_ids = true;
  for (const auto& id : list) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
        id.get<std::int64_t>() > std::numeric_limits<model::TokenId>::max()) {
      return bad("prompt", "a 'prompt' of token ids must hold integers of 0 or more");
    }
    out.ids.push_back(id.get<model::TokenId>());
  }
  if (out.ids.empty()) return bad("prompt", "'prompt' is an empty array");
  return out;
}

ApiResult<std::vector<ApiPrompt>> read_prompts(const Json* prompt) {
  if (prompt == nullptr)
    return bad("prompt", "'prompt' is missing: a string, or an array of strings or token ids");
  std::vector<ApiPrompt> out;
  if (prompt->is_string()) {
    out.push_back({prompt->get<std::string>(), {}, false});
    return out;
  }
  if (!prompt->is_array() || prompt->empty()) {
    return bad("prompt",
               "'prompt' must be a string, or an array of strings or token ids that is not empty");
  }
  if (prompt->front().is_number()) {
    auto ids = read_ids(*prompt);
    if (!ids) return std::unexpected(ids.error());
    out.push_back(std::move(*ids));
    return out;
  }
  if (static_cast<std::int64_t>(prompt->size()) > kMaxChoices) {
    return bad("prompt", fmt::format("'prompt' has more than {} prompts", kMaxChoices));
  }
  for (const auto& each : *prompt) {
    if (each.is_string()) {
      out.push_back({each.get<std::string>(), {}, false});
    } else if (each.is_array()) {
      auto ids = read_ids(each);
      if (!ids) return std::unexpected(ids.error());
      out.push_back(std::move(*ids));
    } else {
      return bad("prompt", fmt::format("'prompt' must hold strings or arrays of token ids, not {}",
                                       type_of(each)));
    }
  }
  return out;
}

// Text of a message: a string, or the text parts of an array, one a line.
ApiResult<Json> read_content(const Json& content, const std::string& place) {
  if (content.is_string() || content.is_null()) return content;
  if (!content.is_array()) {
    return bad(place, fmt::format("'{}' must be a string, an array of parts or null, not {}", place,
                                  type_of(content)));
  }
  std::string text;
  bool first = true;
  for (const auto& part : content) {
    const Json* type = part.is_object() ? json_find(part, "type") : nullptr;
    if (type == nullptr || !type->is_string())
      return bad(place, fmt::format("'{}' must hold objects with a 'type'", place));
    if (*type != "text" && *type != "refusal") {
      return bad(place, fmt::format("'{}' has a part of type '{}'; this model takes text only",
                                    place, type->get<std::string>().substr(0, 40)));
    }
    const Json* value = json_find(part, type->get<std::string>());
    if (value == nullptr || !value->is_string())
      return bad(place, fmt::format("'{}' has a text part without 'text'", place));
    if (!first) text += '\n';
    first = false;
    text += value->get<std::string>();
  }
  return Json(text);
}

ApiResult<Json> read_message(const Json& message, std::size_t index) {
  const std::string place = fmt::format("messages[{}]", index);
  if (!message.is_object())
    return bad(place, fmt::format("'{}' must be an object, not {}", place, type_of(message)));
  const Json* role = json_find(message, "role");
  if (role == nullptr || !role->is_string())
    return bad(place + ".role", fmt::format("'{}.role' is missing or not a string", place));
  static const std::set<std::string> kRoles = {"system",    "developer", "user",
                                               "assistant", "tool",      "function"};
  const auto name = role->get<std::string>();
  if (!kRoles.contains(name)) {
    return bad(
        place + ".role",
        fmt::format("'{}.role' is '{}'; it must be system, developer, user, assistant or tool",
                    place, name.substr(0, 40)));
  }
  Json out = message;
  // Templates know no developer: it is what OpenAI calls the system message now.
  if (name == "developer") out["role"] = "system";
  const Json* content = json_find(message, "content");
  const Json* calls = json_find(message, "tool_calls");
  if (content == nullptr && (name != "assistant" || calls == nullptr)) {
    return bad(place + ".content", fmt::format("'{}.content' is missing", place));
  }
  if (content != nullptr) {
    auto text = read_content(*content, place + ".content");
    if (!text) return std::unexpected(text.error());
    out["content"] = std::move(*text);
  }
  if (calls != nullptr) {
    if (!calls->is_array())
      return bad(place + ".tool_calls", fmt::format("'{}.tool_calls' must be an array", place));
    for (auto& call : out["tool_calls"]) {
      if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) {
        return bad(place + ".tool_calls",
                   fmt::format("'{}.tool_calls' must hold objects with a 'function'", place));
      }
      // OpenAI sends the arguments as text; templates expect the object.
      Json& function = call["function"];
      if (function.contains("arguments") && function["arguments"].is_string()) {
        auto arguments =
            parse_json(function["arguments"].get_ref<const std::string&>(), "arguments");
        if (arguments && arguments->is_object()) function["arguments"] = std::move(*arguments);
      }
    }
  }
  return out;
}

}  // namespace

ApiResult<ApiRequest> parse_completion_request(std::string_view text) {
  auto body = parse_body(text);
  if (!body) return std::unexpected(body.error());
  Fields fields(*body);
  auto out = read_shared(*body, fields);
  if (!out) return out;
  auto prompts = read_prompts(fields.find("prompt"));
  if (!prompts) return std::unexpected(prompts.error());
  out->prompts = std::move(*prompts);
  if (out->n * static_cast<std::int64_t>(out->prompts.size()) > kMaxChoices) {
    return bad("n", fmt::format("n times the number of prompts is more than {}", kMaxChoices));
  }
  fields.flag("echo", out->echo);
  std::int64_t logprobs = 0;
  if (const Json* value = fields.find("logprobs"); value != nullptr && value->is_boolean()) {
    out->want_logprobs = value->get<bool>();
  } else {
    out->want_logprobs = fields.integer("logprobs", logprobs, 0, kMaxApiLogprobs);
  }
  if (fields.error()) return std::unexpected(*fields.error());
  if (out->want_logprobs) out->sampling.top_logprobs = logprobs;
  if (out->echo && out->want_logprobs) {
    return bad("echo",
               "'echo' with 'logprobs' is not supported: the prompt has no log-probabilities");
  }
  if (out->sampling.max_tokens == 0) out->sampling.max_tokens = 16;  // OpenAI's default
  return out;
}

ApiResult<ApiRequest> parse_chat_request(std::string_view text) {
  auto body = parse_body(text);
  if (!body) return std::unexpected(body.error());
  Fields fields(*body);
  auto out = read_shared(*body, fields);
  if (!out) return out;
  const Json* messages = fields.find("messages");
  if (messages == nullptr)
    return bad("messages", "'messages' is missing: an array of {role, content} objects");
  if (!messages->is_array() || messages->empty())
    return bad("messages", "'messages' must be an array that is not empty");
  if (messages->size() > kMaxMessages)
    return bad("messages", fmt::format("'messages' has more than {} entries", kMaxMessages));
  for (std::size_t i = 0; i < messages->size(); ++i) {
    auto message = read_message((*messages)[i], i);
    if (!message) return std::unexpected(message.error());
    out->messages.push_back(std::move(*message));
  }
  fields.flag("logprobs", out->want_logprobs);
  std::int64_t top = 0;
  if (fields.integer("top_logprobs", top, 0, kMaxApiLogprobs) && !out->want_logprobs) {
    fields.fail("top_logprobs", "'top_logprobs' needs \"logprobs\": true");
  }
  if (const Json* tools = fields.find("tools")) {
    if (!tools->is_array()) {
      fields.fail("tools", "'tools' must be an array");
    } else if (const Json* choice = fields.find("tool_choice");
               !tools->empty() && (choice == nullptr || *choice != "none")) {
      for (const auto& tool : *tools) {
        if (!tool.is_object() || !tool.contains("function") || !tool["function"].is_object()) {
          fields.fail("tools",
                      "'tools' must hold {\"type\": \"function\", \"function\": {...}} objects");
        }
      }
      out->template_variables["tools"] = *tools;
    }
  }
  if (const Json* variables = fields.find("chat_template_kwargs")) {
    if (!variables->is_object()) {
      fields.fail("chat_template_kwargs", "'chat_template_kwargs' must be an object");
    } else {
      for (const auto& [key, value] : variables->items()) out->template_variables[key] = value;
    }
  }
  fields.flag("add_generation_prompt", out->add_generation_prompt);
  if (fields.error()) return std::unexpected(*fields.error());
  if (out->want_logprobs) out->sampling.top_logprobs = top;
  return out;
}

ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view text) {
  auto body = parse_body(text);
  if (!body) return std::unexpected(body.error());
  Fields fields(*body);
  TokenizeRequest out;
  if (fields.find("prompt") == nullptr && fields.find("content") == nullptr) {
    return bad("prompt", "'prompt' is missing: the text to tokenize");
  }
  fields.text("content", out.text);
  fields.text("prompt", out.text);
  fields.flag("add_special_tokens", out.add_special);
  if (fields.error()) return std::unexpected(*fields.error());
  return out;
}

ApiResult<std::vector<model::TokenId>> parse_detokenize_request(std::string_view text) {
  auto body = parse_body(text);
  if (!body) return std::unexpected(body.error());
  const Json* tokens = json_find(*body, "tokens");
  if (tokens == nullptr || !tokens->is_array())
    return bad("tokens", "'tokens' must be an array of token ids");
  if (tokens->empty()) return std::vector<model::TokenId>{};
  auto ids = read_ids(*tokens);
  if (!ids) return bad("tokens", "'tokens' must hold integers of 0 or more");
  return std::move(ids->ids);
}

}  // namespace weft::serve
