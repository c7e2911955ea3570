// `weft generate`: continue prompts, in one batch.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/cli/commands.h"
#include "weft/cli/compute_option.h"
#include "weft/model/load.h"
#include "weft/serve/constrain/constraint.h"
#include "weft/serve/engine.h"

namespace weft::cli {

namespace {

using Clock = std::chrono::steady_clock;

struct GenerateOptions {
  std::string model, prompt, prompts_file, system, compute = "auto";
  std::string grammar_file, schema_file, regex;
  bool has_prompt = false, chat = false, json = false, quiet = false;
  int threads = 0;
  std::int64_t count = 1, context = 0, batch_tokens = 512;
  std::int64_t kv_megabytes = 2048;
  serve::SamplingParams sampling;
};

// What the user asked to continue: text, or a conversation.
struct Prompt {
  std::string text;
  Json messages;                                               // with --chat
  std::optional<serve::constrain::ConstraintSpec> constraint;  // of a line of its own
};

std::atomic<bool> interrupted{false};

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

Json conversation(const GenerateOptions& options, const std::string& text) {
  Json messages = Json::array();
  if (!options.system.empty()) {
    messages.push_back({{"role", "system"}, {"content", options.system}});
  }
  messages.push_back({{"role", "user"}, {"content", text}});
  return messages;
}

using serve::constrain::ConstraintSpec;

// "json_schema", "regex" or "grammar" of a line, beside its prompt.
Result<std::optional<ConstraintSpec>> line_constraint(const Json& object,
                                                      const std::string& place) {
  ConstraintSpec spec;
  if (const Json* schema = json_find(object, "json_schema")) {
    spec.kind = ConstraintSpec::Kind::kJsonSchema;
    spec.text = dump_json(*schema);
    return spec;
  }
  for (const auto& [key, kind] : {std::pair("regex", ConstraintSpec::Kind::kRegex),
                                  std::pair("grammar", ConstraintSpec::Kind::kGbnf)}) {
    if (json_find(object, key) == nullptr) continue;
    auto text = json_field<std::string>(object, key);
    if (!text) return std::unexpected(text.error().in(place));
    spec.kind = kind;
    spec.text = std::move(*text);
    return spec;
  }
  return std::nullopt;
}

// What --grammar, --json-schema or --regex ask of every reply.
Result<std::optional<ConstraintSpec>> common_constraint(const GenerateOptions& options) {
  ConstraintSpec spec;
  if (!options.regex.empty()) {
    spec.kind = ConstraintSpec::Kind::kRegex;
    spec.text = options.regex;
    return spec;
  }
  const bool schema = !options.schema_file.empty();
  if (!schema && options.grammar_file.empty()) return std::nullopt;
  spec.kind = schema ? ConstraintSpec::Kind::kJsonSchema : ConstraintSpec::Kind::kGbnf;
  WEFT_ASSIGN(spec.text, read_file(schema ? options.schema_file : options.grammar_file));
  return spec;
}

// One line of a prompts file: plain text, or {"prompt": ...} or {"messages": [...]}.
Result<Prompt> parse_line(const GenerateOptions& options, const std::string& line,
                          const std::string& place) {
  Prompt prompt;
  if (!line.starts_with('{')) {
    prompt.text = line;
  } else {
    WEFT_ASSIGN(const Json object, parse_json(line, place));
    WEFT_ASSIGN(prompt.constraint, line_constraint(object, place));
    if (object.contains("messages")) {
      if (!options.chat) {
        return fail(ErrorCode::kInvalidArgument, "{}: \"messages\" needs --chat", place);
      }
      prompt.messages = object["messages"];
      return prompt;
    }
    auto text = json_field<std::string>(object, "prompt");
    if (!text) return std::unexpected(text.error().in(place));
    prompt.text = std::move(*text);
  }
  if (options.chat) prompt.messages = conversation(options, prompt.text);
  return prompt;
}

Result<std::vector<Prompt>> read_prompts(const GenerateOptions& options) {
  std::vector<Prompt> prompts;
  if (!options.prompts_file.empty()) {
    WEFT_ASSIGN(const std::string content, read_file(options.prompts_file));
    std::size_t begin = 0;
    for (int number = 1; begin < content.size(); ++number) {
      const std::size_t end = std::min(content.find('\n', begin), content.size());
      std::string line = content.substr(begin, end - begin);
      begin = end + 1;
      if (line.ends_with('\r')) line.pop_back();
      if (line.empty()) continue;
      WEFT_ASSIGN(Prompt prompt,
                  parse_line(options, line, fmt::format("{}:{}", options.prompts_file, number)));
      prompts.push_back(std::move(prompt));
    }
    if (prompts.empty()) {
      return fail(ErrorCode::kInvalidArgument, "{} has no prompts (one a line)",
                  options.prompts_file);
    }
    return prompts;
  }
  Prompt prompt;
  if (options.has_prompt) {
    prompt.text = options.prompt;
  } else {
    if (isatty(STDIN_FILENO) != 0) {
      return fail(ErrorCode::kInvalidArgument,
                  "nothing to continue: give --prompt TEXT, --prompts FILE, or text on stdin");
    }
    prompt.text.assign(std::istreambuf_iterator<char>(std::cin), {});
  }
  if (options.chat) prompt.messages = conversation(options, prompt.text);
  prompts.push_back(std::move(prompt));
  return prompts;
}

Result<std::vector<model::TokenId>> encode_prompt(const model::Model& model, const Prompt& prompt) {
  const model::Tokenizer& tokenizer = *model.tokenizer;
  std::vector<model::TokenId> ids;
  if (prompt.messages.is_array()) {
    if (!model.chat_template) {
      return fail(ErrorCode::kInvalidArgument,
                  "{} has no chat template; leave out --chat to continue the text itself",
                  model.name);
    }
    Json extra = Json::object();
    extra["bos_token"] = tokenizer.bos() >= 0 ? tokenizer.token_bytes(tokenizer.bos()) : "";
    extra["eos_token"] =
        tokenizer.eos().empty() ? "" : tokenizer.token_bytes(tokenizer.eos().front());
    WEFT_ASSIGN(
        const std::string text,
        model.chat_template->render(prompt.messages, /*add_generation_prompt=*/true, extra));
    ids = tokenizer.encode(text, {.add_special = false, .parse_special = true});
  } else {
    ids = tokenizer.encode(prompt.text);
    if (ids.empty() && tokenizer.bos() >= 0) ids.push_back(tokenizer.bos());
  }
  if (ids.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "the prompt is empty, and {} has no token to begin a text with", model.name);
  }
  return ids;
}

Json token_json(const model::Tokenizer& tokenizer, model::TokenId id, float logprob) {
  return {{"id", id}, {"token", tokenizer.token_bytes(id)}, {"logprob", logprob}};
}

Json completion_json(const model::Tokenizer& tokenizer, const serve::Completion& completion,
                     const serve::SamplingParams& sampling) {
  Json ids = Json::array(), logprobs = Json::array();
  for (const serve::SampledToken& token : completion.tokens) {
    ids.push_back(token.token);
    if (sampling.top_logprobs < 0) continue;
    Json one = token_json(tokenizer, token.token, token.logprob);
    if (sampling.top_logprobs > 0) {
      Json top = Json::array();
      for (const serve::TokenLogprob& candidate : token.top) {
        top.push_back(token_json(tokenizer, candidate.token, candidate.logprob));
      }
      one["top"] = std::move(top);
    }
    logprobs.push_back(std::move(one));
  }
  return {{"text", completion.text},
          {"ids", std::move(ids)},
          {"finish_reason", serve::to_string(completion.finish)},
          {"logprobs", sampling.top_logprobs < 0 ? Json() : std::move(logprobs)}};
}

// Prints finished completions in order; the one whose turn it is, as it grows.
class Printer {
 public:
  Printer(const GenerateOptions& options, std::size_t count)
      : options_(options), texts_(count), ended_(count, false) {}

  void add(std::size_t index, const serve::TokenEvent& event) {
    texts_[index] += event.text;
    ended_[index] = event.finish != serve::FinishReason::kNone;
    if (options_.json) return;
    while (turn_ < texts_.size()) {
      std::fwrite(texts_[turn_].data(), 1, texts_[turn_].size(), stdout);
      texts_[turn_].clear();
      if (!ended_[turn_]) break;
      std::fputc('\n', stdout);
      ++turn_;
    }
    std::fflush(stdout);
  }

 private:
  const GenerateOptions& options_;
  std::vector<std::string> texts_;
  std::vector<bool> ended_;
  std::size_t turn_ = 0;
};

struct Timing {
  Clock::time_point start, first, end;
  bool any = false;
  std::int64_t prompt_tokens = 0, reply_tokens = 0;
};

void print_speed(const Timing& t, std::size_t completions) {
  const double prompt_time = seconds_between(t.start, t.any ? t.first : t.end);
  const double reply_time = seconds_between(t.any ? t.first : t.end, t.end);
  const double total = seconds_between(t.start, t.end);
  const auto rate = [](double tokens, double seconds) {
    return seconds > 0 ? tokens / seconds : 0;
  };
  if (completions == 1) {
    std::fprintf(stderr,
                 "weft: prompt %lld tokens, %.1f tokens/s; reply %lld tokens, %.1f tokens/s\n",
                 static_cast<long long>(t.prompt_tokens),
                 rate(static_cast<double>(t.prompt_tokens), prompt_time),
                 static_cast<long long>(t.reply_tokens),
                 rate(static_cast<double>(t.reply_tokens) - 1, reply_time));
  } else {
    std::fprintf(stderr, "weft: %zu completions, %lld tokens in %.2f s, %.1f tokens/s\n",
                 completions, static_cast<long long>(t.reply_tokens), total,
                 rate(static_cast<double>(t.reply_tokens), total));
  }
}

Result<int> run(const GenerateOptions& options) {
  WEFT_TRY(serve::validate(options.sampling));
  WEFT_ASSIGN(const std::vector<Prompt> prompts, read_prompts(options));
  WEFT_ASSIGN(const model::Model model, model::load_model(options.model));
  if (!model.tokenizer) {
    return fail(ErrorCode::kNotFound,
                "{} has no tokenizer; put its tokenizer.json (or tokenizer.model, or the "
                "tokenizer .bin of a llama2.c file) beside it",
                options.model);
  }
  ThreadPool pool(options.threads);
  const nn::Compute compute = choose_compute(options.compute, model.weights);
  WEFT_ASSIGN(const auto weights, nn::build_weights(model.config, model.weights, compute, pool));
  serve::EngineOptions engine_options;
  engine_options.max_context = options.context;
  engine_options.max_batch_tokens = options.batch_tokens;
  engine_options.kv_bytes = options.kv_megabytes << 20;
  serve::Engine engine(weights, model.tokenizer, engine_options, pool);

  const auto per_prompt = static_cast<std::size_t>(options.count);
  Printer printer(options, prompts.size() * per_prompt);
  Timing timing;
  std::vector<serve::GenerationRequest> requests;
  WEFT_ASSIGN(const auto common, common_constraint(options));
  std::shared_ptr<const serve::constrain::Constraint> shared;
  if (common) {
    WEFT_ASSIGN(shared, serve::constrain::make_constraint(*common, engine.token_trie()));
  }
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const Prompt& prompt = prompts[p];
    WEFT_ASSIGN(const std::vector<model::TokenId> ids, encode_prompt(model, prompt));
    auto constraint = shared;
    if (prompt.constraint) {
      auto own = serve::constrain::make_constraint(*prompt.constraint, engine.token_trie());
      if (!own) return std::unexpected(own.error().in(fmt::format("prompt {}", p)));
      constraint = std::move(*own);
    }
    for (std::size_t k = 0; k < per_prompt; ++k) {
      serve::GenerationRequest request;
      request.prompt = ids;
      request.sampling = options.sampling;
      request.sampling.constraint = constraint;
      request.sampling.stream = k;
      timing.prompt_tokens += static_cast<std::int64_t>(ids.size());
      const std::size_t index = requests.size();
      request.on_event = [&, index](const serve::TokenEvent& event) {
        if (!timing.any) timing.first = Clock::now();
        timing.any = true;
        if (event.token.token >= 0) ++timing.reply_tokens;
        printer.add(index, event);
        if (interrupted && event.finish == serve::FinishReason::kNone) engine.cancel(event.request);
      };
      requests.push_back(std::move(request));
    }
  }
  std::signal(SIGINT, [](int) { interrupted = true; });
  timing.start = Clock::now();
  WEFT_ASSIGN(const auto completions, serve::generate(engine, std::move(requests)));
  timing.end = Clock::now();

  int exit_code = interrupted ? kExitInterrupted : 0;
  for (std::size_t i = 0; i < completions.size(); ++i) {
    const serve::Completion& completion = completions[i];
    if (options.json) {
      Json object = completion_json(*model.tokenizer, completion, options.sampling);
      if (prompts.size() > 1) object["prompt"] = i / per_prompt;
      if (per_prompt > 1) object["index"] = i % per_prompt;
      std::puts(dump_json(object).c_str());
    }
    if (completion.finish == serve::FinishReason::kError) {
      exit_code = report(Error{ErrorCode::kCorrupt, completion.error});
    }
  }
  if (!options.quiet) print_speed(timing, completions.size());
  return exit_code;
}

}  // namespace

void add_generate_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "Continue prompts with a language model");
  command->footer(
      "Example:\n"
      "  weft generate smollm2-135m-instruct --chat --prompt 'Name three rivers.' --max-tokens 60\n"
      "  weft generate model.gguf --prompts prompts.jsonl --json --temperature 0.8 --seed 7");
  command
      ->add_option("MODEL", options->model,
                   "a .gguf, .safetensors or llama2.c .bin file, a model folder, or the name of "
                   "a fetched model")
      ->required();
  auto* prompt = command->add_option("--prompt", options->prompt, "text to continue");
  auto* prompts = command->add_option("--prompts", options->prompts_file,
                                      "file with one prompt a line: text, {\"prompt\": ...} or "
                                      "(with --chat) {\"messages\": [...]}");
  prompt->excludes(prompts);
  command->add_flag("--chat", options->chat, "prompts are a user's messages (chat template)");
  command->add_option("--system", options->system, "system message, with --chat");
  auto& sampling = options->sampling;
  command->add_option("-n,--n", options->count, "completions per prompt")
      ->check(CLI::Range(1, 100000));
  command->add_option("--max-tokens", sampling.max_tokens, "longest reply")->capture_default_str();
  command->add_option("--temperature", sampling.temperature, "0 = the most probable token")
      ->capture_default_str();
  command->add_option("--top-k", sampling.top_k, "only the k most probable tokens; 0 = off");
  command->add_option("--top-p", sampling.top_p, "only the most probable tokens of this mass");
  command->add_option("--min-p", sampling.min_p, "only tokens this probable relative to the best");
  command->add_option("--repetition-penalty", sampling.repetition_penalty,
                      "above 1 avoids tokens of prompt and reply");
  command->add_option("--frequency-penalty", sampling.frequency_penalty,
                      "subtracted per occurrence in the reply");
  command->add_option("--presence-penalty", sampling.presence_penalty,
                      "subtracted once for tokens of the reply");
  command->add_option("--seed", sampling.seed, "equal seeds give equal replies");
  command->add_option("--stop", sampling.stop, "end the reply before this text (repeatable)")
      ->take_all();
  auto* grammar = command->add_option("--grammar", options->grammar_file,
                                      "replies follow the GBNF grammar in this file");
  auto* schema = command->add_option("--json-schema", options->schema_file,
                                     "replies are JSON that fulfils the schema in this file");
  auto* regex = command->add_option("--regex", options->regex,
                                    "replies match this regular expression as a whole");
  grammar->excludes(schema)->excludes(regex);
  schema->excludes(regex);
  command->add_flag("--ignore-eos", sampling.ignore_eos, "go on to --max-tokens");
  command
      ->add_option("--logprobs", sampling.top_logprobs,
                   "log-probabilities of each token and of the N best, with --json")
      ->check(CLI::Range(std::int64_t{0}, serve::kMaxTopLogprobs));
  command->add_flag("--json", options->json, "one JSON object a completion");
  add_compute_option(*command, "--compute", options->compute);
  command->add_option("--threads", options->threads, "compute threads; 0 = all cores")
      ->check(CLI::Range(0, 1024));
  command->add_option("--context", options->context,
                      "longest prompt and reply; 0 = the model's limit");
  command->add_option("--batch-tokens", options->batch_tokens, "rows of one forward pass")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--kv-megabytes", options->kv_megabytes, "memory for keys and values")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command->add_flag("-q,--quiet", options->quiet, "no speed line on stderr");
  command->callback([options, prompt, &exit_code] {
    options->has_prompt = prompt->count() > 0;
    const auto result = run(*options);
    exit_code = result ? *result : report(result.error());
  });
}

}  // namespace weft::cli
