// weft model inspect: what a model file holds, and whether it can be trusted.
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "weft/base/json.h"
#include "weft/base/thread_pool.h"
#include "weft/cli/commands.h"
#include "weft/model/known_files.h"
#include "weft/model/load.h"
#include "weft/model/value_check.h"

namespace weft::cli {
namespace {

struct Arguments {
  std::string model;
  bool json = false, tensors = false, verify = false;
};

std::string grouped(std::int64_t n) {
  std::string text = std::to_string(n);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string_view to_string(model::KnownFileVerdict verdict) {
  switch (verdict) {
    case model::KnownFileVerdict::kIntact:
      return "intact";
    case model::KnownFileVerdict::kDiffers:
      return "differs";
    case model::KnownFileVerdict::kUnknown:
      return "unknown";
  }
  return "unknown";
}

Json tensor_list(const model::Model& loaded) {
  Json list = Json::array();
  for (const model::NamedTensor& tensor : loaded.weights.tensors()) {
    list.push_back({{"name", tensor.name},
                    {"type", weft::to_string(tensor.view.dtype)},
                    {"shape", tensor.view.shape},
                    {"bytes", tensor.view.bytes()}});
  }
  return list;
}

Json describe(const model::Model& loaded) {
  const model::ModelCounts counts = model::count(loaded.config);
  std::map<std::string, std::int64_t> by_type;
  std::int64_t bytes = 0;
  for (const model::NamedTensor& tensor : loaded.weights.tensors()) {
    ++by_type[std::string(weft::to_string(tensor.view.dtype))];
    bytes += tensor.view.bytes();
  }
  Json json = {{"name", loaded.name},
               {"path", loaded.path.string()},
               {"format", loaded.format},
               {"family", model::to_string(loaded.config.family)},
               {"config", model::config_to_json(loaded.config)},
               {"parameters", counts.parameters},
               {"embedding_parameters", counts.embedding_parameters},
               {"flops_per_token", counts.flops_per_token},
               {"attention_flops_per_token_per_key", counts.attention_flops_per_token_per_key},
               {"kv_elements_per_token", counts.kv_elements_per_token},
               {"kv_bytes_per_token_f32", 4 * counts.kv_elements_per_token},
               {"tensors", loaded.weights.tensors().size()},
               {"tensor_types", by_type},
               {"tensor_bytes", bytes},
               {"tokenizer", nullptr},
               {"chat_template", loaded.chat_template.has_value()},
               {"warnings", loaded.warnings}};
  if (loaded.tokenizer != nullptr) {
    json["tokenizer"] = {{"kind", loaded.tokenizer->kind()},
                         {"tokens", loaded.tokenizer->vocab_size()}};
  }
  return json;
}

void print_text(const Json& json, const model::ModelConfig& config) {
  const auto line = [](const char* name, const std::string& value) {
    std::printf("%-16s %s\n", name, value.c_str());
  };
  line("name", json["name"]);
  line("file",
       fmt::format("{} ({})", json["path"].get<std::string>(), json["format"].get<std::string>()));
  line("family", json["family"]);
  line("shape",
       fmt::format("{} layers, width {}, {} heads of {} ({} for keys and values), hidden {}",
                   config.layers, config.hidden, config.heads, config.head_dim, config.kv_heads,
                   config.intermediate));
  line("vocabulary", fmt::format("{}{}", grouped(config.vocab_size),
                                 config.tie_embeddings ? ", tied embedding" : ""));
  line("context", grouped(config.max_position));
  line("parameters", fmt::format("{} ({} in embeddings)", grouped(json["parameters"]),
                                 grouped(json["embedding_parameters"])));
  line("FLOPs", fmt::format("{} a token, and {} a token and key", grouped(json["flops_per_token"]),
                            grouped(json["attention_flops_per_token_per_key"])));
  line("KV cache", fmt::format("{} bytes a token in F32", grouped(json["kv_bytes_per_token_f32"])));
  std::string types;
  for (const auto& [type, number] : json["tensor_types"].items()) {
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", number.get<std::int64_t>(), type);
  }
  line("tensors", fmt::format("{} in {} bytes: {}", json["tensors"].get<std::int64_t>(),
                              grouped(json["tensor_bytes"]), types));
  line("tokenizer", json["tokenizer"].is_null()
                        ? "none"
                        : fmt::format("{}, {} tokens", json["tokenizer"]["kind"].get<std::string>(),
                                      grouped(json["tokenizer"]["tokens"])));
  line("chat template", json["chat_template"].get<bool>() ? "yes" : "no");
}

// The result of --verify; true when nothing speaks against the file.
Result<bool> verify(const model::Model& loaded, Json& json) {
  Json result = Json::object();
  bool good = true;
  if (!std::filesystem::is_directory(loaded.path)) {
    WEFT_ASSIGN(const auto check,
                model::check_known_file(loaded.path, std::numeric_limits<std::int64_t>::max()));
    result["published_file"] = check.name.empty() ? Json(nullptr) : Json(check.name);
    result["digest"] = to_string(check.verdict);
    good = check.verdict != model::KnownFileVerdict::kDiffers;
  } else {
    result["published_file"] = nullptr;
    result["digest"] = to_string(model::KnownFileVerdict::kUnknown);
  }
  ThreadPool pool;
  WEFT_ASSIGN(const auto values, model::check_values(loaded.weights, pool));
  const std::vector<std::string> bad = model::findings(values);
  result["findings"] = bad;
  result["ok"] = good && bad.empty();
  json["verify"] = result;
  return good && bad.empty();
}

void print_verify(const Json& result) {
  const std::string digest = result["digest"];
  const std::string published =
      result["published_file"].is_null() ? "" : result["published_file"].get<std::string>();
  if (digest == "intact") {
    std::printf("%-16s intact: byte for byte %s\n", "verify", published.c_str());
  } else if (digest == "differs") {
    std::printf("%-16s DIFFERS from %s although its size and header are the same\n", "verify",
                published.c_str());
  } else {
    std::printf("%-16s no digest is known for this file; values were looked at\n", "verify");
  }
  for (const Json& finding : result["findings"])
    std::printf("%-16s %s\n", "", finding.get<std::string>().c_str());
  if (result["findings"].empty()) std::printf("%-16s no NaN, infinity or empty tensor\n", "");
}

int run(const Arguments& arguments) {
  const auto loaded = model::load_model(arguments.model);
  if (!loaded) return report(loaded.error());
  Json json = describe(*loaded);
  if (arguments.tensors) json["tensor_list"] = tensor_list(*loaded);
  bool good = true;
  if (arguments.verify) {
    const auto verified = verify(*loaded, json);
    if (!verified) return report(verified.error());
    good = *verified;
  }
  if (arguments.json) {
    std::printf("%s\n", dump_json(json).c_str());
  } else {
    print_text(json, loaded->config);
    if (arguments.verify) print_verify(json["verify"]);
    for (const model::NamedTensor& tensor : loaded->weights.tensors()) {
      if (!arguments.tensors) break;
      std::printf("%-52s %-5s [%s]\n", tensor.name.c_str(),
                  std::string(weft::to_string(tensor.view.dtype)).c_str(),
                  fmt::format("{}", fmt::join(tensor.view.shape, ", ")).c_str());
    }
  }
  return good ? 0 : kExitCheck;
}

}  // namespace

void add_model_inspect_command(CLI::App& model_command, int& exit_code) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = model_command.add_subcommand("inspect", "Show what a model file holds");
  command->footer("Example: weft model inspect smollm2-135m-instruct --verify");
  command
      ->add_option("model", arguments->model,
                   "a .gguf, .safetensors or llama2.c .bin file, a folder, or a fetched name")
      ->required();
  command->add_flag("--tensors", arguments->tensors, "list every tensor");
  command->add_flag("--verify", arguments->verify,
                    "compare with published digests and look at every value; exit code 3 when "
                    "something is wrong");
  command->add_flag("--json", arguments->json, "print JSON");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace weft::cli
