// weft trace gen: a trace from a fitted model, from ServeGen's clients, or from parameters.
#include <cstdio>
#include <memory>

#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/cli/trace_command.h"
#include "weft/workload/request_info.h"
#include "weft/workload/request_model.h"
#include "weft/workload/request_reader.h"
#include "weft/workload/servegen.h"

namespace weft::cli {
namespace {

using namespace weft::workload;

struct GenArguments {
  std::string model, clients, gaps = "exponential", input = "lognormal:mu=6,sigma=1",
                              output = "lognormal:mu=5,sigma=0.8", turns,
                              think = "lognormal:mu=4.82,sigma=1.25";
  double idc = 0, step_s = 1, rate = 0, duration_s = 0, session_share = 0;
  std::int64_t count = 0;
  std::uint64_t seed = 0;
  std::uint32_t block_tokens = 0, shared_prefix = 0;
  std::string out, to = "weft";
  bool json = false;
};

// The model that the flags describe: one rate, one distribution.
Result<RequestModel> model_of(const GenArguments& arguments) {
  if (!(arguments.rate > 0)) {
    return fail(ErrorCode::kInvalidArgument,
                "give --model FILE, --clients FOLDER, or --rate with --gaps");
  }
  RequestModel model;
  model.source = "parameters";
  model.window_s = arguments.duration_s > 0 ? arguments.duration_s : 3600;
  model.rates = {arguments.rate};
  if (arguments.idc > 0) {
    // Negative binomial counts: variance over mean is 1 / p, in every window of whole steps.
    if (arguments.idc <= 1) {
      return fail(ErrorCode::kOutOfRange, "--idc {} must be above 1, Poisson's", arguments.idc);
    }
    model.gap_form = GapForm::kBatches;
    model.step_s = arguments.step_s;
    const double p = 1 / arguments.idc, mean = arguments.rate * arguments.step_s;
    model.batch = {
        .family = Family::kNegativeBinomial, .a = mean * p / (1 - p), .b = p, .table = {}};
    model.rates = {1 / arguments.step_s};  // so that a draw is a count
  } else {
    std::string gaps = arguments.gaps;
    if (gaps.find("scale=") == std::string::npos && gaps.find("mean=") == std::string::npos &&
        gaps.find("mu=") == std::string::npos) {
      gaps += gaps.find(':') == std::string::npos ? ":mean=1" : ",mean=1";
    }
    WEFT_ASSIGN(model.gaps, Distribution::parse(gaps));
    if (model.gaps.family == Family::kZipf || model.gaps.family == Family::kGeometric) {
      return fail(ErrorCode::kInvalidArgument, "--gaps {}: gaps are times, not counts", gaps);
    }
    model.gaps = model.gaps.scaled(1 / model.gaps.mean());
  }
  WEFT_ASSIGN(model.input, Distribution::parse(arguments.input));
  WEFT_ASSIGN(model.output, Distribution::parse(arguments.output));
  if (!arguments.turns.empty()) {
    WEFT_ASSIGN(model.turns, Distribution::parse(arguments.turns));
    WEFT_ASSIGN(model.think_s, Distribution::parse(arguments.think));
    model.session_share = arguments.session_share > 0 ? arguments.session_share : 1;
    // The rate given is that of requests; sessions open at a lower one.
    const double factor = arguments.rate / model.mean_rate();
    for (double& rate : model.rates) rate *= factor;
  }
  return model;
}

Result<int> run(const GenArguments& arguments) {
  const SynthesisOptions options{
      .count = arguments.count,
      .duration_s = arguments.duration_s,
      .rate = arguments.model.empty() && arguments.clients.empty() ? 0 : arguments.rate,
      .seed = arguments.seed,
      .block_tokens = arguments.block_tokens,
      .shared_prefix_tokens = arguments.shared_prefix};
  RequestTrace trace;
  if (!arguments.clients.empty()) {
    if (options.block_tokens > 0) {
      return fail(ErrorCode::kUnsupported,
                  "--block-tokens is not for --clients: ServeGen's clients "
                  "carry no prefixes, and none is invented");
    }
    WEFT_ASSIGN(const ClientPool pool, load_clients(arguments.clients));
    WEFT_ASSIGN(trace, synthesise_clients(pool, options));
  } else {
    RequestModel model;
    if (!arguments.model.empty()) {
      WEFT_ASSIGN(const std::string text, read_file(arguments.model));
      WEFT_ASSIGN(const Json json, parse_json(text, arguments.model));
      auto read = RequestModel::from_json(json);
      if (!read) return std::unexpected(read.error().in(arguments.model));
      model = *std::move(read);
    } else {
      WEFT_ASSIGN(model, model_of(arguments));
    }
    WEFT_ASSIGN(trace, synthesise(model, options));
  }
  if (trace.rows.empty())
    return fail(ErrorCode::kInvalidArgument, "no request falls into that time");
  WEFT_TRY(write_requests(trace, arguments.to, arguments.out));
  if (arguments.json) {
    Json out = {{"file", arguments.out}, {"parameters", trace.parameters}};
    out.update(info_json(describe_requests(trace)));
    std::printf("%s\n", dump_json(out).c_str());
  } else {
    trace.name = arguments.out;
    std::printf("%s  parameters      %s\n", info_text(trace, describe_requests(trace)).c_str(),
                trace.parameters.c_str());
  }
  return 0;
}

}  // namespace

void add_trace_gen_command(CLI::App& trace_command, int& exit_code) {
  const auto arguments = std::make_shared<GenArguments>();
  CLI::App* gen = trace_command.add_subcommand(
      "gen", "Draw a trace from a model, from ServeGen's clients, or from parameters");
  gen->footer(
      "Examples:\n"
      "  weft trace gen --model conv.model --seed 1 -o like-conv.trace\n"
      "  weft trace gen --rate 5 --gaps gamma:shape=0.25 --count 10000 -o bursty.trace\n"
      "  weft trace gen --rate 5 --idc 20 --input zipf:theta=1.1,max=1024 --output fixed:64 "
      "--duration 600 -o counts.trace\n"
      "  weft trace gen --clients ServeGen/data/reason/deepseek-r1 --rate 2 -o clients.trace\n"
      "  weft trace gen --rate 1 --turns geometric:mean=3 --block-tokens 16 --shared-prefix 256 "
      "--duration 600 -o chat.trace");
  gen->add_option("--model", arguments->model, "a model that `weft trace fit -o` wrote");
  gen->add_option("--clients", arguments->clients, "a folder of ServeGen's chunk-N-trace.csv")
      ->excludes("--model");
  gen->add_option("--rate", arguments->rate, "mean requests a second (default: the model's)")
      ->check(CLI::PositiveNumber);
  gen->add_option("--gaps", arguments->gaps,
                  "exponential, gamma:shape=S, weibull:shape=S, lognormal:mu=M,sigma=S")
      ->capture_default_str();
  gen->add_option("--idc", arguments->idc,
                  "negative binomial counts with this index of dispersion, instead of gaps");
  gen->add_option("--step", arguments->step_s, "seconds of a count")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  gen->add_option("--input", arguments->input, "input tokens: lognormal, gamma, zipf, fixed:N")
      ->capture_default_str();
  gen->add_option("--output", arguments->output, "output tokens")->capture_default_str();
  gen->add_option("--turns", arguments->turns, "turns of a session: geometric:mean=3");
  gen->add_option("--sessions", arguments->session_share,
                  "share of arrivals that open a session (default with --turns: 1)")
      ->check(CLI::Range(0.0, 1.0));
  gen->add_option("--think", arguments->think, "seconds between turns")->capture_default_str();
  gen->add_option("--count", arguments->count, "requests")->check(CLI::NonNegativeNumber);
  gen->add_option("--duration", arguments->duration_s, "seconds (default: the model's windows)")
      ->check(CLI::NonNegativeNumber);
  gen->add_option("--seed", arguments->seed)->capture_default_str();
  gen->add_option("--block-tokens", arguments->block_tokens,
                  "give prompts blocks of so many tokens; later turns repeat the earlier ones");
  gen->add_option("--shared-prefix", arguments->shared_prefix,
                  "tokens that all prompts begin with");
  gen->add_option("-o,--out", arguments->out, "file to write")->required();
  gen->add_option("--to", arguments->to, "weft, azure, burstgpt, mooncake, vidur")
      ->capture_default_str();
  gen->add_flag("--json", arguments->json, "print JSON");
  gen->callback([arguments, &exit_code] {
    const auto result = run(*arguments);
    exit_code = result ? *result : report(result.error());
  });
}

}  // namespace weft::cli
