// weft model convert: between GGUF types, safetensors folders and llama2.c.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "weft/base/json.h"
#include "weft/base/progress.h"
#include "weft/base/thread_pool.h"
#include "weft/cli/commands.h"
#include "weft/model/convert.h"
#include "weft/model/load.h"

namespace weft::cli {
namespace {

struct Arguments {
  std::string from, to, type;
  double shard_gib = 4;
  int threads = 0;
  bool overwrite = false, json = false;
};

Json to_json(const model::ConvertReport& report) {
  return {{"path", report.path.string()},  {"format", model::to_string(report.format)},
          {"tensor_bytes", report.bytes},  {"tensor_types", report.tensors_by_type},
          {"fallbacks", report.fallbacks}, {"requantised", report.requantised},
          {"notes", report.notes}};
}

void print_text(const model::ConvertReport& report) {
  std::string types;
  for (const auto& [type, number] : report.tensors_by_type) {
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", number, type);
  }
  std::printf("%s: %s, %.1f MB of tensors (%s)\n", report.path.c_str(),
              std::string(model::to_string(report.format)).c_str(),
              static_cast<double>(report.bytes) / 1e6, types.c_str());
  if (!report.fallbacks.empty()) {
    std::printf(
        "%zu tensors have columns that are not whole blocks of the type asked for and took "
        "another:\n",
        report.fallbacks.size());
    constexpr std::size_t kShown = 5;
    for (std::size_t i = 0; i < std::min(kShown, report.fallbacks.size()); ++i) {
      std::printf("  %s\n", report.fallbacks[i].c_str());
    }
    if (report.fallbacks.size() > kShown) std::printf("  ... (--json lists all)\n");
  }
  if (report.requantised > 0) {
    std::printf(
        "%lld tensors were quantised already and lost accuracy twice; convert from the original "
        "where you can\n",
        static_cast<long long>(report.requantised));
  }
  for (const std::string& note : report.notes) std::printf("%s\n", note.c_str());
}

int run(const Arguments& arguments) {
  model::ConvertOptions options;
  const auto format = model::format_of_target(arguments.to);
  if (!format) return report(format.error());
  if (arguments.type.empty()) {
    options.type = *format == model::ModelFormat::kLlama2c ? DType::kF32 : DType::kBF16;
  } else {
    const auto type = dtype_from_string(arguments.type);
    if (!type) {
      return report(
          {ErrorCode::kInvalidArgument,
           fmt::format(
               "--type {} is not known; use F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q5_K or Q6_K",
               arguments.type)});
    }
    options.type = *type;
  }
  options.overwrite = arguments.overwrite;
  options.shard_bytes = static_cast<std::int64_t>(arguments.shard_gib * (1 << 30));
  const auto loaded = model::load_model(arguments.from);
  if (!loaded) return report(loaded.error());
  std::optional<Progress> progress;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    if (!progress) progress.emplace(fmt::format("convert {}", loaded->name), total, "B");
    progress->set(done);
  };
  ThreadPool pool(arguments.threads);
  const auto result = model::convert_model(*loaded, arguments.to, options, pool);
  progress.reset();
  if (!result) return report(result.error());
  if (arguments.json) {
    std::printf("%s\n", dump_json(to_json(*result)).c_str());
  } else {
    print_text(*result);
  }
  return 0;
}

}  // namespace

void add_model_convert_command(CLI::App& model_command, int& exit_code) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      model_command.add_subcommand("convert", "Convert a model to another format or type");
  command->footer("Example: weft model convert smollm2-135m-instruct smollm2-q8.gguf --type Q8_0");
  command->add_option("from", arguments->from, "a model file, folder or fetched name")->required();
  command
      ->add_option("to", arguments->to, "NAME.gguf, NAME.bin (llama2.c) or a folder (safetensors)")
      ->required();
  command->add_option(
      "--type", arguments->type,
      "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q5_K or Q6_K (default BF16; llama2.c F32)");
  command->add_option("--shard-gib", arguments->shard_gib, "largest safetensors file")
      ->check(CLI::Range(0.001, 1024.0));
  command->add_option("--threads", arguments->threads, "threads (default: one for each core)")
      ->check(CLI::Range(0, 1024));
  command->add_flag("--overwrite", arguments->overwrite, "replace TO where it exists");
  command->add_flag("--json", arguments->json, "print JSON");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace weft::cli
