// weft load: a load test of an OpenAI-compatible server.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>

#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/base/progress.h"
#include "weft/base/units.h"
#include "weft/cli/commands.h"
#include "weft/serve/load_plan.h"
#include "weft/serve/load_report.h"
#include "weft/workload/field_text.h"
#include "weft/workload/request_reader.h"

namespace weft::cli {
namespace {

using namespace weft::serve;

std::atomic<bool> interrupted{false};

struct LoadArguments {
  std::string url, model, api_key_file, trace, trace_format, input, output, levels, slo, extra;
  PlanOptions plan;
  LoadOptions load;
  bool chat = false, allow_eos = false, no_calibration = false, json = false, quiet = false,
       fail_on_error = false;
  double require = -1;
  int repeats = 1;
  std::string out, csv, html;
};

Result<std::string> read_key(const std::string& file) {
  if (file.empty()) {
    const char* key = std::getenv("WEFT_API_KEY");
    return std::string(key != nullptr ? key : "");
  }
  WEFT_ASSIGN(std::string key, read_file(file, 4096));
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  return key;
}

Result<LoadPlan> make_plan(LoadArguments& arguments, std::vector<std::string>& notes) {
  if (!arguments.input.empty()) {
    WEFT_ASSIGN(arguments.plan.input, workload::Distribution::parse(arguments.input));
  }
  if (!arguments.output.empty()) {
    WEFT_ASSIGN(arguments.plan.output, workload::Distribution::parse(arguments.output));
  }
  std::vector<std::string_view> cells;
  std::string scratch;
  if (!arguments.levels.empty()) {
    workload::split_csv(arguments.levels, cells, scratch);
    for (const auto cell : cells) {
      double level = 0;
      if (!workload::parse_double(cell, level)) {
        return fail(ErrorCode::kInvalidArgument, "--levels: '{}' is no rate", cell);
      }
      arguments.plan.levels.push_back(level);
    }
  }
  if (arguments.trace.empty()) return plan_load(arguments.plan, nullptr, notes);
  workload::RequestReadOptions reading;
  reading.format = arguments.trace_format;
  WEFT_ASSIGN(const auto loaded, workload::load_requests(arguments.trace, reading));
  if (loaded.tally.dropped() > 0) {
    notes.push_back(fmt::format("{} of {} rows of the trace were dropped (`weft trace check`)",
                                loaded.tally.dropped(), loaded.tally.rows()));
  }
  return plan_load(arguments.plan, &loaded.trace, notes);
}

// One run with its live line.
Result<LoadRun> run_once(const LoadTarget& target, const LoadPlan& plan,
                         const LoadArguments& arguments) {
  LoadOptions options = arguments.load;
  options.calibrate = !arguments.no_calibration;
  options.stop = &interrupted;
  std::optional<Progress> bar;
  options.progress = [&](const LoadProgress& now) {
    if (!bar) bar.emplace("load", now.total, "requests", ProgressOptions{.quiet = arguments.quiet});
    bar->note(fmt::format("{} in flight, {} failed, TTFT p50 {}, {:.0f} tokens/s", now.in_flight,
                          now.failed, human_duration(now.ttft_p50_s), now.output_rate));
    bar->set(now.done);
  };
  return run_load(target, plan, options);
}

Result<int> run(LoadArguments arguments) {
  WEFT_ASSIGN(LoadTarget target, parse_target(arguments.url));
  target.model = arguments.model;
  target.chat = arguments.chat;
  target.ignore_eos = !arguments.allow_eos;
  WEFT_ASSIGN(target.api_key, read_key(arguments.api_key_file));
  if (!arguments.extra.empty()) {
    WEFT_ASSIGN(target.extra, parse_json(arguments.extra, "--extra"));
    if (!target.extra.is_object()) {
      return fail(ErrorCode::kInvalidArgument, "--extra must be a JSON object");
    }
  }
  WEFT_ASSIGN(const LoadSlo slo, parse_slo(arguments.slo));
  if (arguments.require >= 0 && slo.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--require needs --slo");
  }
  std::vector<std::string> notes;
  WEFT_ASSIGN(const LoadPlan plan, make_plan(arguments, notes));
  std::signal(SIGINT, [](int) {
    if (interrupted.exchange(true)) std::_Exit(kExitInterrupted);
  });

  std::vector<LoadReport> reports;
  std::optional<LoadRun> last;
  for (int i = 0; i < arguments.repeats && !interrupted; ++i) {
    WEFT_ASSIGN(LoadRun made, run_once(target, plan, arguments));
    reports.push_back(report_load(plan, made, slo, arguments.url));
    auto& to = reports.back().notes;
    to.insert(to.begin(), notes.begin(), notes.end());
    last = std::move(made);
  }
  const LoadReport& report = reports.back();
  Json json = report.json();
  if (reports.size() > 1) json["repeats"] = repeats_json(reports);
  if (!arguments.out.empty()) WEFT_TRY(write_file_atomic(arguments.out, dump_json(json) + "\n"));
  if (!arguments.csv.empty()) WEFT_TRY(write_load_csv(*last, arguments.csv));
  if (!arguments.html.empty()) WEFT_TRY(write_load_page(report, *last, arguments.html));
  if (arguments.json) {
    std::printf("%s\n", dump_json(json).c_str());
  } else {
    std::printf("%s", report.text().c_str());
    if (reports.size() > 1) {
      std::printf("over %zu runs (mean, 95 %% interval):\n", reports.size());
      for (const auto& [name, value] : json["repeats"].items()) {
        std::printf("  %-22s %.5g [%.5g, %.5g]\n", name.c_str(), value["mean"].get<double>(),
                    value["interval_95"][0].get<double>(), value["interval_95"][1].get<double>());
      }
    }
  }
  if (interrupted) return kExitInterrupted;
  if (arguments.require >= 0 && report.whole.attainment < arguments.require) {
    std::fprintf(stderr, "weft: %.1f %% of requests met the SLO, %.1f %% were required\n",
                 100 * report.whole.attainment, 100 * arguments.require);
    return kExitCheck;
  }
  if (arguments.fail_on_error && report.whole.ok < report.whole.requests) {
    std::fprintf(stderr, "weft: %lld of %lld requests failed\n",
                 static_cast<long long>(report.whole.requests - report.whole.ok),
                 static_cast<long long>(report.whole.requests));
    return kExitCheck;
  }
  return 0;
}

}  // namespace

void add_load_command(CLI::App& app, int& exit_code) {
  const auto arguments = std::make_shared<LoadArguments>();
  LoadArguments& a = *arguments;
  CLI::App* command =
      app.add_subcommand("load", "Load-test an OpenAI-compatible server and report latencies");
  command->footer(
      "Examples:\n"
      "  weft load http://127.0.0.1:8080 --mode poisson --rate 4 --duration 60\n"
      "  weft load http://127.0.0.1:8080 --mode gamma --shape 0.25 --rate 4 --input lognormal:mu=5,"
      "sigma=1 --output fixed:64\n"
      "  weft load http://127.0.0.1:8080 --mode replay --trace AzureLLMInferenceTrace_conv.csv "
      "--speed 0.5 --max-input 512 --html load.html\n"
      "  weft load http://127.0.0.1:8080 --mode sweep --levels 1,2,4,8 --slo ttft=500ms,tpot=50ms "
      "--require 0.99\n"
      "  weft load http://127.0.0.1:8080 --mode closed --concurrency 32 --csv run.csv");
  command->add_option("URL", a.url, "http://HOST:PORT of the server")->required();
  command->add_option("--mode", a.plan.mode, "replay, poisson, gamma, closed, ramp, sweep")
      ->capture_default_str();
  command->add_option("--rate", a.plan.rate, "requests a second (poisson, gamma)")
      ->capture_default_str();
  command->add_option("--shape", a.plan.shape, "of the gamma gaps; 1 is Poisson, below burstier")
      ->capture_default_str();
  command->add_option("--from", a.plan.rate_from, "ramp: first rate")->capture_default_str();
  command->add_option("--to", a.plan.rate_to, "ramp: last rate")->capture_default_str();
  command->add_option("--levels", a.levels, "sweep: rates, by commas");
  command->add_option("--concurrency", a.plan.concurrency, "closed: requests in flight")
      ->capture_default_str();
  CLI::Option* duration =
      command->add_option("--duration", a.plan.duration_s, "seconds; of each level of a sweep")
          ->capture_default_str();
  command->add_option("--count", a.plan.count, "at most so many requests");
  command->add_option("--trace", a.trace, "replayed, or the source of lengths in other modes");
  command->add_option("--format", a.trace_format, "of the trace (default: from its first line)");
  command->add_option("--speed", a.plan.speed, "replay: times are divided by it")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--session-closed", a.plan.session_closed,
                    "replay: a later turn waits for the answer before it, then for its gap");
  command->add_option("--input", a.input,
                      "prompt tokens: fixed:128, lognormal:mu=..,sigma=.., ...");
  command->add_option("--output", a.output, "answer tokens: fixed:32, ...");
  command->add_option("--input-scale", a.plan.input_scale, "multiplies prompt lengths")
      ->check(CLI::PositiveNumber);
  command->add_option("--output-scale", a.plan.output_scale, "multiplies answer lengths")
      ->check(CLI::PositiveNumber);
  command->add_option("--max-input", a.plan.max_input, "cuts longer prompts");
  command->add_option("--max-output", a.plan.max_output, "cuts longer answers");
  command->add_option("--seed", a.plan.seed, "of arrivals, lengths and prompts")
      ->capture_default_str();
  command->add_option("--model", a.model, "name to ask for (default: the server's first)");
  command->add_option("--api-key-file", a.api_key_file, "key to send; or set WEFT_API_KEY");
  command->add_flag("--chat", a.chat, "use /v1/chat/completions");
  command->add_flag("--allow-eos", a.allow_eos,
                    "answers may end early (default: asks for exactly the planned tokens)");
  command->add_option("--extra", a.extra, "JSON object that is merged into every request");
  command->add_flag("--no-calibration", a.no_calibration, "one word a token, no requests before");
  command->add_option("--slo", a.slo, "ttft=500ms,tpot=50ms,itl=1s,e2e=10s: any of them");
  command->add_option("--require", a.require, "exit 3 if a smaller share of requests meets the SLO")
      ->check(CLI::Range(0.0, 1.0));
  command->add_flag("--fail-on-error", a.fail_on_error, "exit 3 if a request failed");
  command->add_option("--timeout", a.load.timeout_s, "seconds for one request")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--warmup", a.load.warmup_s, "seconds that are not reported")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--max-connections", a.load.max_connections, "further requests wait")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--stop-on-saturation", a.load.stop_on_saturation,
                    "end when requests in flight and TTFT both keep rising");
  command->add_option("--repeats", a.repeats, "runs, for intervals over them")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("-o,--out", a.out, "write the report as JSON");
  command->add_option("--csv", a.csv, "write a row for each request; --mode replay reads it");
  command->add_option("--html", a.html, "write a page with curves");
  command->add_flag("--json", a.json, "print the report as JSON");
  command->add_flag("--quiet", a.quiet, "no progress on stderr");
  command->callback([arguments, duration, &exit_code] {
    // A replay lasts as long as its trace unless it is told otherwise.
    if (arguments->plan.mode == "replay" && duration->count() == 0) arguments->plan.duration_s = 0;
    const auto result = run(*arguments);
    exit_code = result ? *result : report(result.error());
  });
}

}  // namespace weft::cli
