// weft train: train a model on text files.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "weft/cli/learn/learn_commands.h"
#include "weft/serve/engine.h"
#include "weft/train/text_run.h"

namespace weft::cli {
namespace {

std::atomic<bool> stop_requested{false};
void request_stop(int) { stop_requested.store(true); }

struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;
  bool resume = false, json = false, quiet = false, show_config = false;
  int threads = 0;
};

// Continues the sample prompt with an engine of its own.
train::Sampler sampler_of(const train::TrainConfig& config, ThreadPool& pool) {
  return [&config, &pool](const std::shared_ptr<const nn::TransformerWeights>& weights,
                          const std::shared_ptr<const model::Tokenizer>& tokenizer,
                          std::int64_t step) {
    serve::EngineOptions options;
    options.kv_bytes = std::int64_t{64} << 20;
    serve::Engine engine(weights, tokenizer, options, pool);
    std::string text;
    bool done = false;
    serve::GenerationRequest request;
    request.prompt = tokenizer->encode(config.sample_prompt, {.add_special = false});
    const std::int64_t room =
        weights->config.max_position - static_cast<std::int64_t>(request.prompt.size());
    request.sampling.max_tokens = std::max<std::int64_t>(1, std::min(config.sample_tokens, room));
    request.sampling.temperature = static_cast<float>(config.sample_temperature);
    request.sampling.seed = static_cast<std::uint64_t>(config.seed + step);
    request.on_event = [&](const serve::TokenEvent& event) {
      text += event.text;
      done = event.finish != serve::FinishReason::kNone;
    };
    const auto submitted = engine.submit(std::move(request));
    if (!submitted) return "(no sample: " + submitted.error().message + ")";
    while (!done && engine.step()) {
    }
    return text;
  };
}

int run_train(const TrainArguments& arguments) {
  train::TrainConfig config;
  ConfigSchema schema = train::schema_of(config);
  if (auto read = schema.read_file(arguments.config, arguments.overrides); !read) {
    return report(read.error());
  }
  if (arguments.show_config) {
    std::printf("%s", schema.dump().c_str());
    return 0;
  }
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
  ThreadPool pool(arguments.threads);
  const train::RunOptions options{.resume = arguments.resume,
                                  .quiet = arguments.quiet,
                                  .stop = &stop_requested,
                                  .sampler = sampler_of(config, pool)};
  const auto summary = train::train_text(config, options, pool);
  if (!summary) return report(summary.error());
  if (arguments.json) {
    std::printf("%s\n", dump_json(train::to_json(*summary)).c_str());
  } else {
    std::printf("%s after step %lld of %lld: loss %.4f",
                summary->interrupted ? "interrupted" : "done",
                static_cast<long long>(summary->steps), static_cast<long long>(config.steps),
                summary->train_loss);
    if (summary->eval_loss >= 0) std::printf(", evaluation loss %.4f", summary->eval_loss);
    std::printf("\n%lld parameters, %lld tokens in %.1f s (%.0f tokens/s)\ncheckpoint: %s\n",
                static_cast<long long>(summary->parameters),
                static_cast<long long>(summary->tokens), summary->seconds,
                summary->tokens_per_second, summary->checkpoint.c_str());
  }
  return summary->interrupted ? kExitInterrupted : 0;
}

}  // namespace

void add_train_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Train a model on text files");
  command->footer(
      "Example:\n  weft train tiny.toml --set train.steps=200\n"
      "  weft train tiny.toml --resume\n"
      "where tiny.toml holds at least: [data] files = [\"text.txt\"]");
  command->add_option("CONFIG", arguments->config, "configuration, TOML")->required();
  command->add_option("--set", arguments->overrides, "KEY=VALUE, wins over the file")
      ->allow_extra_args(false);
  command->add_flag("--resume", arguments->resume, "continue from the newest intact checkpoint");
  command->add_option("--threads", arguments->threads, "compute threads; 0: one for each core");
  command->add_flag("--show-config", arguments->show_config,
                    "print the effective configuration and stop");
  command->add_flag("--json", arguments->json, "print the summary as JSON");
  command->add_flag("--quiet", arguments->quiet, "no progress");
  command->callback([arguments, &exit_code] { exit_code = run_train(*arguments); });
}

}  // namespace weft::cli
