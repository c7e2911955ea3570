// weft data ls: the manifest of inputs, and what is present.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>

#include "weft/base/file.h"
#include "weft/base/hash.h"
#include "weft/base/json.h"
#include "weft/base/progress.h"
#include "weft/base/units.h"
#include "weft/cli/commands.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

struct DataArguments {
  std::string dir;
  std::string under;
  bool verify = false;
  bool json = false;
  bool quiet = false;
};

struct Entry {
  std::string path;
  std::string source;
  std::string licence;
  std::string purpose;
  std::int64_t bytes = 0;
  std::string sha256;
  std::string state;  // present, absent, wrong size, wrong digest
};

Result<Entry> read_entry(const Json& json) {
  Entry entry;
  WEFT_ASSIGN(entry.path, json_field<std::string>(json, "path"));
  WEFT_ASSIGN(entry.bytes, json_field<std::int64_t>(json, "bytes"));
  WEFT_ASSIGN(entry.sha256, json_field<std::string>(json, "sha256"));
  WEFT_ASSIGN(entry.source, json_field_or<std::string>(json, "repo", ""));
  WEFT_ASSIGN(entry.licence, json_field_or<std::string>(json, "licence", ""));
  WEFT_ASSIGN(entry.purpose, json_field_or<std::string>(json, "purpose", ""));
  const fs::path relative = fs::path(entry.path).lexically_normal();
  if (relative.empty() || relative.is_absolute() || *relative.begin() == "..") {
    return fail(ErrorCode::kInvalidArgument, "\"path\" is \"{}\", which leads out of the folder",
                entry.path);
  }
  return entry;
}

Result<std::vector<Entry>> read_manifest(const fs::path& dir) {
  const fs::path file = dir / "MANIFEST.json";
  WEFT_ASSIGN(const std::string text, read_file(file));
  WEFT_ASSIGN(const Json json, parse_json(text, file.string()));
  if (!json.is_array()) {
    return fail(ErrorCode::kInvalidArgument, "{}: expected a list of entries", file.string());
  }
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < json.size(); ++i) {
    auto entry = read_entry(json[i]);
    if (!entry) {
      return std::unexpected(entry.error().in(fmt::format("{}: entry {}", file.string(), i + 1)));
    }
    entries.push_back(std::move(*entry));
  }
  return entries;
}

Status check(const fs::path& dir, bool verify, Entry& entry) {
  const fs::path file = dir / entry.path;
  std::error_code error;
  const auto size = fs::file_size(file, error);
  if (error) {
    entry.state = "absent";
  } else if (size != static_cast<std::uintmax_t>(entry.bytes)) {
    entry.state = "wrong size";
  } else {
    entry.state = "present";
    if (verify) {
      WEFT_ASSIGN(const std::string digest, sha256_file(file));
      if (digest != entry.sha256) entry.state = "wrong digest";
    }
  }
  return {};
}

Json to_json(const Entry& entry) {
  return {{"path", entry.path},      {"state", entry.state},   {"bytes", entry.bytes},
          {"sha256", entry.sha256},  {"source", entry.source}, {"licence", entry.licence},
          {"purpose", entry.purpose}};
}

Result<int> list(const DataArguments& arguments) {
  const char* variable = std::getenv("WEFT_DATA");
  const fs::path dir = !arguments.dir.empty() ? arguments.dir : variable != nullptr ? variable : "";
  if (dir.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "name the folder of the data: --data DIR, or set WEFT_DATA");
  }
  WEFT_ASSIGN(std::vector<Entry> entries, read_manifest(dir));
  std::erase_if(entries, [&](const Entry& e) { return !e.path.starts_with(arguments.under); });
  std::map<std::string, std::int64_t> states;
  std::int64_t present_bytes = 0;
  {
    std::int64_t total = 0;
    for (const Entry& entry : entries) total += entry.bytes;
    Progress progress("verify", total, "B", {.quiet = arguments.quiet || !arguments.verify});
    for (Entry& entry : entries) {
      WEFT_TRY(check(dir, arguments.verify, entry));
      progress.advance(entry.bytes);
      ++states[entry.state];
      if (entry.state == "present") present_bytes += entry.bytes;
    }
  }
  for (const Entry& entry : entries) {
    if (arguments.json) {
      std::printf("%s\n", dump_json(to_json(entry)).c_str());
    } else {
      std::printf("%-12s %9s  %-60s %s\n", entry.state.c_str(),
                  human_bytes(static_cast<double>(entry.bytes)).c_str(), entry.path.c_str(),
                  entry.licence.c_str());
    }
  }
  if (!arguments.json) {
    std::string summary;
    for (const auto& [state, count] : states) {
      summary += fmt::format("{}{} {}", summary.empty() ? "" : ", ", count, state);
    }
    std::printf("%s (%s present)\n", summary.empty() ? "no entries" : summary.c_str(),
                human_bytes(static_cast<double>(present_bytes)).c_str());
  }
  const auto good = states.find("present");
  const bool all = entries.empty() || (good != states.end() && good->second == std::ssize(entries));
  return arguments.verify && !all ? kExitCheck : 0;
}

}  // namespace

void add_data_command(CLI::App& app, int& exit_code) {
  CLI::App* data = app.add_subcommand("data", "The inputs of tests and examples");
  data->require_subcommand(1);
  CLI::App* ls = data->add_subcommand(
      "ls",
      "Lists the manifest of inputs, and what is present.\n\nExample: weft data ls --data data "
      "--under tokenizers/ --verify");
  auto arguments = std::make_shared<DataArguments>();
  ls->add_option("--data", arguments->dir, "folder with MANIFEST.json (default: $WEFT_DATA)");
  ls->add_option("--under", arguments->under, "only paths that begin so");
  ls->add_flag("--verify", arguments->verify,
               "compare every SHA-256; exit code 3 unless all are present and right");
  ls->add_flag("--json", arguments->json, "one JSON object an entry on stdout, nothing else");
  ls->add_flag("--quiet", arguments->quiet, "no progress on stderr");
  ls->callback([arguments, &exit_code] {
    const auto result = list(*arguments);
    exit_code = result ? *result : report(result.error());
  });
}

}  // namespace weft::cli
