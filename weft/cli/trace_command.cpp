#include "weft/cli/trace_command.h"

#include <cstring>
#include <memory>

namespace weft::cli {
namespace {

using workload::TraceKind;

const TraceVerbs& verbs_of(TraceKind kind) {
  return kind == TraceKind::kJob ? job_trace_verbs() : request_trace_verbs();
}

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
  void (*options)(CLI::App&, TraceArguments&);
};

void need_out(CLI::App& verb, TraceArguments& arguments) {
  verb.add_option("-o,--out", arguments.out, "file to write")->required();
}

void html_option(CLI::App& verb, TraceArguments& arguments) {
  verb.add_option("--html", arguments.html, "also write one page with plots");
}

void fit_options(CLI::App& verb, TraceArguments& arguments) {
  verb.add_option("-o,--out", arguments.out, "write the model, for `weft trace gen --model`");
  verb.add_option("--window", arguments.window_s,
                  "seconds of a constant rate; 0: one rate (default: from the rate)");
  verb.add_option("--gaps", arguments.gaps,
                  "auto, bootstrap, exponential, gamma, weibull, lognormal, hyperexponential")
      ->capture_default_str();
  verb.add_option("--lengths", arguments.lengths, "rows (whole rows are drawn) or copula")
      ->capture_default_str();
  verb.add_option("--seed", arguments.seed, "of the rows that a large trace keeps")
      ->capture_default_str();
  html_option(verb, arguments);
}

void convert_options(CLI::App& verb, TraceArguments& arguments) {
  need_out(verb, arguments);
  verb.add_option("--to", arguments.to, "weft, azure, burstgpt, mooncake, vidur")
      ->capture_default_str();
}

void slice_options(CLI::App& verb, TraceArguments& arguments) {
  need_out(verb, arguments);
  verb.add_option("--from", arguments.from_s, "seconds after the first request")
      ->capture_default_str();
  verb.add_option("--until", arguments.to_s, "seconds after the first request, exclusive");
  verb.add_option("--rows", arguments.rows, "at most so many requests; 0 = all");
  verb.add_option("--label", arguments.label, "only rows with this label");
  verb.add_option("--speed", arguments.speed, "divide all times by this")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

constexpr VerbText kVerbs[] = {
    {"check", "Read a trace and report every dropped or repaired row",
     "weft trace check BurstGPT_3.csv --json", &TraceVerbs::check, nullptr},
    {"import", "Read a known trace into Weft's own format, with a report of its rows",
     "weft trace import conversation_trace.jsonl -o conversation.trace", &TraceVerbs::import,
     need_out},
    {"info", "Statistics of a trace", "weft trace info AzureLLMInferenceTrace_conv.csv",
     &TraceVerbs::info, html_option},
    {"fit", "Fit distributions, and a model to draw traces from",
     "weft trace fit AzureLLMInferenceTrace_conv.csv -o conv.model", &TraceVerbs::fit, fit_options},
    {"convert", "Write a trace in another format",
     "weft trace convert BurstGPT_1.csv --to mooncake -o burstgpt.jsonl", &TraceVerbs::convert,
     convert_options},
    {"slice", "Cut a trace by time, rows or label",
     "weft trace slice AzureLLMInferenceTrace_conv.csv --from 600 --until 1200 -o cut.trace",
     &TraceVerbs::slice, slice_options},
    {"compare", "Two traces side by side", "weft trace compare real.csv generated.trace",
     &TraceVerbs::compare, html_option},
};

void add_reading_options(CLI::App& verb, TraceArguments& arguments) {
  verb.add_option("--format", arguments.format, "of the file (default: told from its first line)");
  verb.add_option("--order", arguments.order, "what a row earlier than the one before gets")
      ->check(CLI::IsMember({"auto", "drop", "sort"}))
      ->capture_default_str();
  verb.add_option("--block-tokens", arguments.block_tokens,
                  "tokens of a prompt block (default: the format's)");
  verb.add_option("--tokenizer", arguments.tokenizer,
                  "model whose tokenizer counts the tokens of conversations as text");
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
  for (const auto& list : {workload::request_formats(), workload::job_formats()}) {
    for (const auto& format : list) {
      formats += fmt::format("  {:<14} {}\n", format.name, format.description);
    }
  }
  command->footer(formats);
  for (const VerbText& text : kVerbs) {
    const auto arguments = std::make_shared<TraceArguments>();
    CLI::App* verb = command->add_subcommand(text.name, text.description);
    verb->footer(fmt::format("Example: {}", text.example));
    const bool two = std::strcmp(text.name, "compare") == 0;
    verb->add_option("FILE", arguments->files, two ? "two trace files" : "trace file")
        ->required()
        ->expected(two ? 2 : 1);
    add_reading_options(*verb, *arguments);
    if (text.options != nullptr) text.options(*verb, *arguments);
    verb->callback([arguments, &exit_code, verb_of = text.verb, name = text.name] {
      const auto result = dispatch(*arguments, verb_of, name);
      exit_code = result ? *result : report(result.error());
    });
  }
  add_trace_gen_command(*command, exit_code);
}

}  // namespace weft::cli
