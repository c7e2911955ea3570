// weft model chat-template: what a conversation looks like to the model.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/cli/commands.h"
#include "weft/model/chat_template.h"
#include "weft/model/chat_template_file.h"
#include "weft/model/load.h"

namespace weft::cli {
namespace {

struct ChatTemplateArguments {
  std::string model;
  std::string file;
  bool lines = false;
  bool show = false;
};

Result<model::TemplateSource> template_source(const ChatTemplateArguments& arguments) {
  if (!arguments.file.empty()) {
    WEFT_ASSIGN(std::string text, read_file(arguments.file));
    return model::TemplateSource{std::move(text), Json::object()};
  }
  if (arguments.model.empty()) {
    return fail(ErrorCode::kInvalidArgument, "name a model, or a template with --template FILE");
  }
  WEFT_ASSIGN(const auto path, model::resolve_model(arguments.model));
  return model::read_chat_template(path);
}

// A conversation is the array of messages, or an object with `messages` and the
// template's other variables.
Result<std::string> render(const model::ChatTemplate& chat_template, const Json& variables,
                           std::string_view text) {
  WEFT_ASSIGN(const Json input, parse_json(text, "conversation"));
  Json extra = variables;
  Json messages = input;
  bool generation_prompt = false;
  if (input.is_object()) {
    const Json* found = json_find(input, "messages");
    if (found == nullptr)
      return fail(ErrorCode::kInvalidArgument, "the conversation has no 'messages'");
    messages = *found;
    WEFT_ASSIGN(generation_prompt, json_field_or<bool>(input, "add_generation_prompt", false));
    for (const auto& [key, value] : input.items()) {
      if (key != "messages" && key != "add_generation_prompt") extra[key] = value;
    }
  }
  return chat_template.render(messages, generation_prompt, extra);
}

int run(const ChatTemplateArguments& arguments) {
  const auto source = template_source(arguments);
  if (!source) return report(source.error());
  if (arguments.show) {
    std::fwrite(source->text.data(), 1, source->text.size(), stdout);
    return 0;
  }
  const auto chat_template = model::ChatTemplate::parse(source->text);
  if (!chat_template) return report(chat_template.error());
  if (arguments.lines) {
    std::string line;
    while (std::getline(std::cin, line)) {
      if (line.empty()) continue;
      const auto text = render(*chat_template, source->variables, line);
      const Json result = text ? Json{{"text", *text}} : Json{{"error", text.error().message}};
      std::printf("%s\n", dump_json(result).c_str());
    }
    return 0;
  }
  const std::string input(std::istreambuf_iterator<char>(std::cin), {});
  const auto text = render(*chat_template, source->variables, input);
  if (!text) return report(text.error());
  std::fwrite(text->data(), 1, text->size(), stdout);
  return 0;
}

}  // namespace

void add_chat_template_command(CLI::App& model_command, int& exit_code) {
  const auto arguments = std::make_shared<ChatTemplateArguments>();
  CLI::App* command = model_command.add_subcommand(
      "chat-template", "Print what a conversation looks like to a model (JSON on stdin)");
  command->footer(
      "Example: echo '[{\"role\": \"user\", \"content\": \"Hello\"}]' |\n"
      "         weft model chat-template smollm2-135m-instruct");
  command->add_option("model", arguments->model, "a model file, directory or fetched name");
  command->add_option("--template", arguments->file, "a file that holds the template instead");
  command->add_flag("--lines", arguments->lines,
                    "one conversation a line; prints {\"text\"} or {\"error\"} for each");
  command->add_flag("--show", arguments->show, "print the template itself");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace weft::cli
