#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/base/thread_pool.h"
#include "weft/cli/learn/learn_commands.h"
#include "weft/rl/dump.h"
#include "weft/rl/loop.h"
#include "weft/rl/report.h"
#include "weft/rl/view.h"

namespace weft::cli {
namespace {

std::atomic<bool> stop_requested{false};

// The first signal ends the run after its step; the second ends the process.
void on_signal(int) {
  if (stop_requested.exchange(true)) std::_Exit(130);
}

struct RlOptions {
  std::string file, run;
  bool resume = false, json = false, quiet = false;
  int threads = 0;
  std::map<std::string, std::string> values;  // --key value
  std::map<std::string, bool> flags;          // --key
};

// key=value overrides in TOML.
std::vector<std::string> overrides_of(const RlOptions& options) {
  std::vector<std::string> overrides;
  for (const rl::ConfigKey& key : rl::config_keys()) {
    if (const auto it = options.values.find(key.name);
        it != options.values.end() && !it->second.empty())
      overrides.push_back(
          key.name + "=" +
          (key.kind == rl::ConfigKey::Kind::kText ? dump_json(Json(it->second)) : it->second));
    if (const auto it = options.flags.find(key.name); it != options.flags.end() && it->second)
      overrides.push_back(key.name + "=true");
  }
  return overrides;
}

Result<rl::RlConfig> configure(RlOptions& options) {
  rl::RlConfig config;
  const std::vector<std::string> overrides = overrides_of(options);
  if (options.resume) {
    if (options.run.empty())
      return fail(ErrorCode::kInvalidArgument, "--resume needs --run DIR, the run to go on with");
    if (!options.file.empty())
      return fail(ErrorCode::kInvalidArgument,
                  "--resume takes the configuration of {}; leave {} out", options.run,
                  options.file);
    WEFT_ASSIGN(config, rl::RunDirectory::read_config(options.run));
    for (const std::string& o : overrides)
      if (!o.starts_with("steps="))
        return fail(ErrorCode::kInvalidArgument,
                    "a resumed run keeps its configuration; only --steps may be given (got {})", o);
  }
  ConfigSchema schema;
  rl::declare(config, schema);
  if (options.file.empty()) {
    WEFT_TRY(schema.read_text("", "command line", overrides));
  } else {
    WEFT_TRY(schema.read_file(options.file, overrides));
  }
  WEFT_TRY(rl::resolve(config));
  return config;
}

// runs/TASK-ALGO-SEED, with -2, -3 ... while such a run exists.
std::string free_run_name(const rl::RlConfig& config) {
  const std::string task = config.task.substr(0, config.task.find(':'));
  const std::string base = "runs/" + task + "-" + config.algo + "-" + std::to_string(config.seed);
  std::string name = base;
  for (int i = 2; std::filesystem::exists(name); ++i) name = base + "-" + std::to_string(i);
  return name;
}

Json summary(const rl::LoopResult& r, const std::filesystem::path& run) {
  const auto evaluation = [](const rl::EvaluationMetrics& e) {
    Json j = Json::object();
    j["step"] = e.step;
    j["exact"] = e.exact;
    j["reward"] = e.reward;
    return j;
  };
  Json j = Json::object();
  j["run"] = run.string();
  j["run_id"] = r.run_id.str();
  j["steps"] = r.steps;
  j["interrupted"] = r.interrupted;
  j["reward_mean"] = r.last.reward_mean;
  j["first_evaluation"] = evaluation(r.first_evaluation);
  j["last_evaluation"] = evaluation(r.last_evaluation);
  j["best_evaluation"] = evaluation(r.best_evaluation);
  j["logp_mismatch_max"] = r.mismatch_max;
  j["skipped_steps"] = r.skipped;
  j["reward_errors"] = r.reward_errors;
  j["entropy_alarm_step"] = r.alarm_step;
  j["learned"] = r.learned;
  j["model"] = (run / "model").string();
  j["report"] = (run / "report.html").string();
  return j;
}

int run(RlOptions& options) {
  auto config = configure(options);
  if (!config) return report(config.error());
  if (options.run.empty()) options.run = free_run_name(*config);
  stop_requested = false;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  ThreadPool pool(options.threads);
  rl::LoopView view(stderr, options.quiet);
  rl::LoopEvents events = view.events();
  const auto refresh_report = [&] {
    if (auto written = rl::write_report(options.run); !written)
      std::fprintf(stderr, "weft: warning: report: %s\n", written.error().message.c_str());
  };
  if (options.json) {
    events.on_step = [show = events.on_step](const rl::StepMetrics& m,
                                             const std::vector<rl::Group>& g) {
      std::printf("%s\n", dump_json(rl::to_json(m)).c_str());
      show(m, g);
    };
  }
  events.on_evaluation = [&, show = events.on_evaluation](
                             const rl::EvaluationMetrics& m,
                             const std::vector<rl::EvaluatedReply>& r) {
    show(m, r);
    refresh_report();
  };
  auto result =
      rl::run_loop(*config, {.run = options.run, .resume = options.resume, .stop = &stop_requested},
                   events, pool);
  if (!result) return report(result.error());
  refresh_report();
  if (options.json) {
    std::printf("%s\n", dump_json(summary(*result, options.run)).c_str());
  } else if (result->interrupted) {
    std::printf("stopped after step %ld; go on with: weft rl --resume --run %s\n",
                static_cast<long>(result->steps), options.run.c_str());
  } else {
    std::printf(
        "greedy replies exactly right: %.1f %% before, %.1f %% after %ld steps\n"
        "model   %s/model\nreport  %s/report.html\n",
        100 * result->first_evaluation.exact, 100 * result->last_evaluation.exact,
        static_cast<long>(result->steps), options.run.c_str(), options.run.c_str());
  }
  return result->interrupted ? 130 : 0;
}

int replay(const std::string& file, bool json) {
  auto dump = rl::read_dump(file);
  if (!dump) return report(dump.error());
  const rl::Replay r = rl::replay(*dump);
  if (json) {
    Json j = Json::object();
    j["step"] = dump->step;
    j["why"] = dump->why;
    j["sequences"] = dump->batch.sequences();
    j["tokens"] = dump->batch.tokens();
    j["updates"] = dump->updates.size();
    j["values"] = r.values;
    j["different"] = r.different;
    j["largest_difference"] = r.largest_difference;
    if (r.different > 0) j["first_difference"] = r.first_difference;
    Json sums = Json::array();
    for (const rl::LossSums& s : r.sums) {
      Json u = Json::object();
      u["objective"] = s.objective;
      u["policy"] = s.policy;
      u["kl"] = s.kl;
      u["entropy"] = s.entropy;
      u["value"] = s.value;
      u["approx_kl"] = s.approx_kl;
      u["ratio_max"] = s.ratio_max;
      sums.push_back(std::move(u));
    }
    j["sums"] = std::move(sums);
    std::printf("%s\n", dump_json(j).c_str());
  } else {
    std::printf("step %ld (%s): %zu sequences, %zu tokens, %zu updates\n",
                static_cast<long>(dump->step), dump->why.c_str(), dump->batch.sequences(),
                dump->batch.tokens(), dump->updates.size());
    if (r.different == 0) {
      std::printf("replayed %ld values: equal to the bit\n", static_cast<long>(r.values));
    } else {
      std::printf("replayed %ld values: %ld differ, by up to %.3g; first %s\n",
                  static_cast<long>(r.values), static_cast<long>(r.different), r.largest_difference,
                  r.first_difference.c_str());
    }
  }
  return r.different == 0 ? 0 : kExitCheck;
}

}  // namespace

void add_rl_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<RlOptions>();
  CLI::App* rl = app.add_subcommand("rl", "Post-train a model by reinforcement learning");
  rl->footer(
      "Examples:\n"
      "  weft rl --task modadd --algo grpo\n"
      "  weft rl --task words --model smollm2-135m-instruct --steps 40 --run runs/first\n"
      "  weft rl --task jsonl:questions.jsonl --verifier 'python3 score.py' --model MODEL\n"
      "  weft rl CONFIG.toml --seed 1\n"
      "  weft rl --resume --run runs/first\n"
      "  weft rl replay runs/first/dumps/step-00000001.safetensors");
  rl->add_option("config", options->file,
                 "TOML file with the keys below (max_tokens = 12); flags win");
  rl->add_option("--run", options->run, "run directory (default: runs/TASK-ALGO-SEED)");
  rl->add_flag("--resume", options->resume, "go on from the newest checkpoint of --run");
  rl->add_flag("--json", options->json,
               "metrics of each step and a summary on stdout, as JSON lines");
  rl->add_flag("--quiet", options->quiet, "no progress on stderr");
  rl->add_option("--threads", options->threads, "compute threads (default: one a core)");
  for (const rl::ConfigKey& key : rl::config_keys()) {
    std::string flag = "--" + key.name;
    for (char& c : flag)
      if (c == '_') c = '-';
    if (key.kind == rl::ConfigKey::Kind::kFlag && key.name != "bypass") {
      rl->add_flag(flag, options->flags[key.name], key.help)->group("Configuration");
    } else {
      rl->add_option(flag, options->values[key.name], key.help)->group("Configuration");
    }
  }
  auto file = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  CLI::App* again =
      rl->add_subcommand("replay", "Run a batch dump through advantages and losses again");
  again->add_option("dump", *file, "a file of RUN/dumps")->required();
  again->add_flag("--json", *json, "one JSON object on stdout");
  again->footer("Example:\n  weft rl replay runs/first/dumps/step-00000001.safetensors");
  rl->require_subcommand(0, 1);
  rl->callback(
      [=, &exit_code] { exit_code = again->parsed() ? replay(*file, *json) : run(*options); });
}

}  // namespace weft::cli
