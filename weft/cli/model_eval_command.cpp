// `weft model eval`: how well a model predicts a text, and how far it is from another.
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/cli/commands.h"
#include "weft/cli/compute_option.h"
#include "weft/model/load.h"
#include "weft/serve/evaluate.h"

namespace weft::cli {
namespace {

struct EvalOptions {
  std::string model, text, reference, compute = "auto", reference_compute = "f32";
  serve::EvaluateOptions evaluate;
  int threads = 0;
  bool json = false;
};

// What is scored without --text: plain English that any language model of English
// finds far easier than guessing.
constexpr const char* kSampleText =
    "Once upon a time there was a little girl who lived in a small house near the park. She had a "
    "big red ball and she loved to play with it every day. One day the ball was lost and she was "
    "very sad. Her mom said, \"Do not be sad. We can look for the ball together.\" They looked "
    "under the bed and behind the door. Then they went outside and saw a dog. The dog had the "
    "ball! The girl was happy and said thank you to the dog. They played together until it was "
    "time to go home. At night she told her dad about the dog, and he smiled and said good night.";

Result<std::shared_ptr<const nn::TransformerWeights>> load_weights(const model::Model& model,
                                                                   const std::string& compute,
                                                                   ThreadPool& pool) {
  return nn::build_weights(model.config, model.weights, choose_compute(compute, model.weights),
                           pool);
}

Result<int> run(EvalOptions options) {
  WEFT_ASSIGN(const model::Model model, model::load_model(options.model));
  if (!model.tokenizer) {
    return fail(ErrorCode::kNotFound, "{} has no tokenizer, so no text can be given to it",
                options.model);
  }
  std::string text = kSampleText;
  if (!options.text.empty()) {
    WEFT_ASSIGN(text, read_file(options.text));
  }
  const auto ids = model.tokenizer->encode(text);
  if (options.text.empty()) {
    options.evaluate.windows = 1;
    options.evaluate.skip = 0;
    options.evaluate.window =
        std::min<std::int64_t>({static_cast<std::int64_t>(ids.size()), options.evaluate.window,
                                model.config.max_position});
  }
  ThreadPool pool(options.threads);
  WEFT_ASSIGN(const auto weights, load_weights(model, options.compute, pool));
  std::shared_ptr<const nn::TransformerWeights> reference;
  if (!options.reference.empty()) {
    WEFT_ASSIGN(const model::Model other, model::load_model(options.reference));
    WEFT_ASSIGN(reference, load_weights(other, options.reference_compute, pool));
  }
  WEFT_ASSIGN(const serve::Evaluation result,
              serve::evaluate(weights, reference, ids, options.evaluate, pool));
  // A model that predicts worse than guessing among its tokens was not trained to be
  // like that: its weights are damaged, or belong to another shape or tokenizer.
  const bool worse_than_guessing =
      !(result.perplexity < static_cast<double>(model.config.vocab_size));
  if (options.json) {
    Json json = {{"model", model.name},
                 {"tokens", result.tokens},
                 {"perplexity", result.perplexity},
                 {"worse_than_guessing", worse_than_guessing}};
    if (reference) {
      json["reference"] = options.reference;
      json["mean_kl"] = result.mean_kl;
      json["max_kl"] = result.max_kl;
      json["same_best"] = result.same_best;
    }
    std::puts(dump_json(json).c_str());
  } else {
    std::printf("perplexity %.4f over %lld tokens\n", result.perplexity,
                static_cast<long long>(result.tokens));
    if (reference) {
      std::printf("against %s: mean KL divergence %.6f, largest %.4f, same best token %.2f %%\n",
                  options.reference.c_str(), result.mean_kl, result.max_kl, 100 * result.same_best);
    }
  }
  if (!worse_than_guessing) return 0;
  std::fprintf(stderr,
               "weft: %s predicts this text worse than guessing (perplexity %.4g of %lld tokens): "
               "its weights are damaged, or the tokenizer is another model's\n",
               options.model.c_str(), result.perplexity,
               static_cast<long long>(model.config.vocab_size));
  return kExitCheck;
}

}  // namespace

void add_model_eval_command(CLI::App& model_command, int& exit_code) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* command = model_command.add_subcommand(
      "eval", "Perplexity of a text, and divergence from a reference model");
  command->footer(
      "Without --text a short built-in English text is scored, which tells a damaged file from a "
      "sound one\n(exit code 3).\nExample:\n"
      "  weft model eval model.Q4_1.gguf --text valid.txt --reference model.F32.gguf");
  command->add_option("MODEL", options->model, "model file, folder or fetched name")->required();
  command->add_option("--text", options->text, "text to predict")->check(CLI::ExistingFile);
  command->add_option("--reference", options->reference,
                      "model whose distribution is the reference");
  command->add_option("--window", options->evaluate.window, "tokens of a window")
      ->capture_default_str();
  command->add_option("--windows", options->evaluate.windows, "windows to score; 0 = all")
      ->capture_default_str();
  command->add_option("--skip", options->evaluate.skip,
                      "tokens of a window that are context only; -1 = half");
  add_compute_option(*command, "--compute", options->compute);
  add_compute_option(*command, "--reference-compute", options->reference_compute);
  command->add_option("--threads", options->threads, "compute threads; 0 = all cores")
      ->check(CLI::Range(0, 1024));
  command->add_flag("--json", options->json, "one JSON object");
  command->callback([options, &exit_code] {
    const auto result = run(*options);
    exit_code = result ? *result : report(result.error());
  });
}

}  // namespace weft::cli
