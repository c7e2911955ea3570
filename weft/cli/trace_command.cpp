#include "weft/cli/trace_command.h"

#include <memory>

namespace weft::cli {
namespace {

using workload::TraceKind;

const TraceVerbs& verbs_of(TraceKind) { return request_trace_verbs(); }

// Runs the verb of the kind that the first file has.
Result<int> dispatch(const TraceArguments& arguments, TraceVerbs::Verb TraceVerbs::* verb,
                     const char* name) {
  WEFT_ASSIGN(const workload::TraceFormat* format,
              workload::detect_trace_format(arguments.files.front(), arguments.format));
  const auto run = verbs_of(format->kind).*verb;
  if (run == nullptr) {
    return fail(ErrorCode::kUnsupported, "`weft trace {}` is not for traces of {}s ({} is one)",
                name, workload::to_string(format->kind), arguments.files.front());
  }
  return run(arguments);
}

struct VerbText {
  const char* name;
  const char* description;
  const char* example;
  TraceVerbs::Verb TraceVerbs::* verb;
};
constexpr VerbText kVerbs[] = {
    {"check", "Read a trace and report every dropped or repaired row",
     "weft trace check BurstGPT_3.csv --json", &TraceVerbs::check},
    {"info", "Statistics of a trace", "weft trace info AzureLLMInferenceTrace_conv.csv",
     &TraceVerbs::info},
};

void add_reading_options(CLI::App& verb, TraceArguments& arguments) {
  verb.add_option("--format", arguments.format, "of the file (default: told from its first line)");
  verb.add_option("--order", arguments.order, "what a row earlier than the one before gets")
      ->check(CLI::IsMember({"auto", "drop", "sort"}))
      ->capture_default_str();
  verb.add_option("--block-tokens", arguments.block_tokens,
                  "tokens of a prompt block (default: the format's)");
  verb.add_flag("--strict", arguments.strict, "the first bad row is an error");
  verb.add_flag("--json", arguments.json, "print JSON");
  verb.add_flag("--quiet", arguments.quiet, "no progress on stderr");
}

}  // namespace

void add_trace_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("trace", "Read, describe, fit, generate and convert traces");
  command->require_subcommand(1);
  std::string formats = "Formats:\n";
  for (const auto& format : workload::request_formats()) {
    formats += fmt::format("  {:<14} {}\n", format.name, format.description);
  }
  command->footer(formats);
  for (const VerbText& text : kVerbs) {
    const auto arguments = std::make_shared<TraceArguments>();
    CLI::App* verb = command->add_subcommand(text.name, text.description);
    verb->footer(fmt::format("Example: {}", text.example));
    verb->add_option("FILE", arguments->files, "trace file")->required()->expected(1);
    add_reading_options(*verb, *arguments);
    verb->callback([arguments, &exit_code, verb_of = text.verb, name = text.name] {
      const auto result = dispatch(*arguments, verb_of, name);
      exit_code = result ? *result : report(result.error());
    });
  }
}

}  // namespace weft::cli
