// weft model tokenize: texts to ids and back, and a tokenizer as tokenizer.json.
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/cli/commands.h"
#include "weft/model/base64.h"
#include "weft/model/load.h"
#include "weft/model/tokenizer.h"

namespace weft::cli {
namespace {

using model::TokenId;

struct Arguments {
  std::string model;
  std::string text;
  std::string export_file;
  bool ids = false, decode = false, json = false;
  bool special = false, no_add_special = false, keep_special = false;
};

// A line of --json input: a string, or {"base64": "..."} for bytes that are not UTF-8.
Result<std::string> text_of_line(const std::string& line) {
  WEFT_ASSIGN(const Json value, parse_json(line, "standard input"));
  if (value.is_string()) return value.get<std::string>();
  WEFT_ASSIGN(const std::string encoded, json_field<std::string>(value, "base64"));
  auto bytes = model::base64_decode(encoded);
  if (!bytes) return fail(ErrorCode::kInvalidArgument, "standard input: \"base64\" is not base64");
  return std::move(*bytes);
}

// A line of --decode input: "1 2 3", or a JSON array.
Result<std::vector<TokenId>> ids_of_line(const std::string& line) {
  std::string array = line;
  if (line.find('[') == std::string::npos) {
    array = "[";
    for (std::size_t at = 0; at < line.size();) {
      const std::size_t begin = line.find_first_not_of(" \t\r", at);
      if (begin == std::string::npos) break;
      const std::size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
      if (array.size() > 1) array += ',';
      array.append(line, begin, end - begin);
      at = end;
    }
    array += ']';
  }
  WEFT_ASSIGN(const Json values, parse_json(array, "standard input"));
  std::vector<TokenId> ids;
  for (const Json& value : values) {
    if (!value.is_number_integer()) {
      return fail(ErrorCode::kInvalidArgument, "standard input: ids must be integers, not {}",
                  dump_json(value));
    }
    const auto id = value.get<std::int64_t>();
    ids.push_back(id >= 0 && id <= INT32_MAX ? static_cast<TokenId>(id) : TokenId{-1});
  }
  return ids;
}

void print_ids(const model::Tokenizer& tokenizer, const std::vector<TokenId>& ids,
               const Arguments& arguments) {
  if (arguments.json) {
    std::printf("%s\n", dump_json(Json(ids)).c_str());
    return;
  }
  std::string line;
  if (arguments.ids) {
    for (const TokenId id : ids) line += fmt::format("{}{}", line.empty() ? "" : " ", id);
    std::printf("%s\n", line.c_str());
    return;
  }
  for (const TokenId id : ids) {
    std::printf("%8d  %s\n", id, dump_json(Json(tokenizer.token_bytes(id))).c_str());
  }
}

int run(const Arguments& arguments) {
  const auto path = model::resolve_model(arguments.model);
  if (!path) return report(path.error());
  const auto tokenizer = model::load_tokenizer(*path);
  if (!tokenizer) return report(tokenizer.error());
  if (!arguments.export_file.empty()) {
    const auto json = (*tokenizer)->to_tokenizer_json();
    if (!json) return report(json.error());
    const auto written = write_file_atomic(arguments.export_file, dump_json(*json) + "\n");
    if (!written) return report(written.error());
    return 0;
  }
  const model::EncodeOptions options{.add_special = !arguments.no_add_special,
                                     .parse_special = arguments.special};
  const auto handle = [&](const std::string& line, bool plain) -> Status {
    if (arguments.decode) {
      WEFT_ASSIGN(const auto ids, ids_of_line(line));
      const std::string text = (*tokenizer)->decode(ids, !arguments.keep_special);
      std::printf("%s\n", arguments.json ? dump_json(Json(text)).c_str() : text.c_str());
      return {};
    }
    std::string text = line;
    if (arguments.json && !plain) {
      WEFT_ASSIGN(text, text_of_line(line));
    }
    print_ids(**tokenizer, (*tokenizer)->encode(text, options), arguments);
    return {};
  };
  if (!arguments.text.empty()) {
    const auto done = handle(arguments.text, true);
    return done ? 0 : report(done.error());
  }
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    const auto done = handle(line, false);
    if (!done) return report(done.error());
  }
  return 0;
}

}  // namespace

void add_tokenize_command(CLI::App& model_command, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = model_command.add_subcommand(
      "tokenize", "Turn text into ids and back, or write a tokenizer.json");
  command->footer(
      "Example:\n  weft model tokenize smollm2-135m-instruct --text \"Hello, world!\"\n"
      "  echo \"504 3575 282 4649\" | weft model tokenize smollm2-135m-instruct --decode");
  command
      ->add_option("MODEL", arguments->model,
                   "a model, a tokenizer file, a folder, or a fetched name")
      ->required();
  command->add_option("--text", arguments->text,
                      "the text; without it each line of standard input is one");
  command->add_flag("--ids", arguments->ids, "print only the ids, one text a line");
  command->add_flag("--decode", arguments->decode, "read ids, print text");
  command->add_flag("--special", arguments->special,
                    "recognise special tokens that are written in the text");
  command->add_flag("--no-add-special", arguments->no_add_special,
                    "do not add the tokens that begin or end a text");
  command->add_flag("--keep-special", arguments->keep_special,
                    "with --decode: print special tokens too");
  command->add_flag("--json", arguments->json,
                    "lines are JSON: a string (or {\"base64\": ...}) in, an array of ids out; with "
                    "--decode the other way");
  command->add_option("--export", arguments->export_file,
                      "write the tokenizer as a tokenizer.json of that name and stop");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace weft::cli
