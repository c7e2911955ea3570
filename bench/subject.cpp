#include "bench/subject.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "weft/base/file.h"
#include "weft/base/rng.h"

extern char** environ;

namespace weft::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Runs `weft model convert`, this same program, with its messages on stderr.
Status convert(const fs::path& from, const fs::path& to, std::string_view type) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return fail(ErrorCode::kIo, "/proc/self/exe: {}", error.message());
  std::vector<std::string> words = {self.string(), "model",  "convert",        from.string(),
                                    to.string(),   "--type", std::string(type)};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, 2, 1);  // our stdout is for results
  pid_t pid = -1;
  const int spawned = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (spawned != 0) return fail(ErrorCode::kIo, "cannot start weft: {}", std::strerror(spawned));
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return fail(ErrorCode::kUnavailable, "`weft model convert {} {} --type {}` failed",
                from.string(), to.string(), type);
  }
  return {};
}

// The converted model in the cache, made when it is absent.
Result<fs::path> converted(const BenchOptions& options, const std::string& suffix,
                           std::string_view type) {
  WEFT_ASSIGN(const fs::path from, model::resolve_model(options.model));
  WEFT_ASSIGN(const fs::path cache, cache_dir());
  const fs::path folder = cache / "bench";
  fs::create_directories(folder);
  const fs::path to = folder / (from.stem().string() + suffix);
  if (fs::exists(to)) return to;
  const fs::path part = folder / ("part-" + to.filename().string());
  fs::remove_all(part);
  WEFT_TRY(convert(from, part, type));
  fs::rename(part, to);
  return to;
}

double matrix_flops(const nn::PackedMatrix& matrix) {
  return matrix ? 2.0 * static_cast<double>(matrix.out()) * static_cast<double>(matrix.in()) : 0;
}

double matrix_bytes(const nn::PackedMatrix& matrix) {
  return matrix ? static_cast<double>(matrix.bytes()) : 0;
}

}  // namespace

Result<fs::path> gguf_of(const BenchOptions& options, DType type) {
  WEFT_ASSIGN(const fs::path from, model::resolve_model(options.model));
  if (from.string().find("." + std::string(to_string(type)) + ".gguf") != std::string::npos) {
    return from;  // as fetched
  }
  const std::string name(to_string(type));
  return converted(options, "." + name + ".gguf", name);
}

Result<fs::path> directory_of(const BenchOptions& options) {
  return converted(options, ".BF16", "BF16");
}

Result<std::unique_ptr<Subject>> load_subject(const fs::path& path, nn::Compute compute,
                                              ThreadPool& pool) {
  auto subject = std::make_unique<Subject>();
  WEFT_ASSIGN(subject->model, model::load_model(path.string()));
  WEFT_ASSIGN(subject->weights,
              nn::build_weights(subject->model.config, subject->model.weights, compute, pool));
  serve::EngineOptions options;
  options.max_batch_tokens = 512;
  options.max_sequences = 64;
  subject->engine =
      std::make_unique<serve::Engine>(subject->weights, subject->model.tokenizer, options, pool);
  for (const nn::LayerWeights& layer : subject->weights->layers) {
    for (const nn::PackedMatrix* matrix : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) {
      subject->body_bytes += matrix_bytes(*matrix);
      subject->body_flops_per_token += matrix_flops(*matrix);
    }
  }
  subject->head_bytes = matrix_bytes(subject->weights->lm_head);
  subject->head_flops_per_token = matrix_flops(subject->weights->lm_head);
  subject->int8 = compute == nn::Compute::kInt8;
  return subject;
}

double attention_flops(const model::ModelConfig& config, double position) {
  // q k^T and p v: two products of heads x head_dim with each earlier position.
  return 4.0 * static_cast<double>(config.layers * config.heads * config.head_dim) * (position + 1);
}

std::vector<model::TokenId> prompt_tokens(const model::ModelConfig& config, std::uint64_t salt,
                                          std::int64_t count) {
  Rng rng(salt, RngUse::kTest);
  std::vector<model::TokenId> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    // The first ids are often special tokens.
    const auto plain = static_cast<std::uint32_t>(config.vocab_size - 2000);
    tokens.push_back(static_cast<model::TokenId>(1000 + rng.next_below(plain)));
  }
  return tokens;
}

namespace {

// Submits the requests; counts[i] grows with each token of request i.
Status submit_all(Subject& subject, std::uint64_t salt, std::int64_t prompt,
                  const serve::SamplingParams& sampling, std::vector<std::int64_t>& counts,
                  std::vector<std::uint64_t>& requests, std::string& error) {
  for (std::size_t i = 0; i < counts.size(); ++i) {
    serve::GenerationRequest request;
    request.prompt = prompt_tokens(subject.model.config, salt * 1000 + i, prompt);
    request.sampling = sampling;
    request.sampling.seed = salt * 1000 + i;
    request.on_event = [&counts, &error, i](const serve::TokenEvent& event) {
      if (event.token.token >= 0) ++counts[i];
      if (event.finish == serve::FinishReason::kError) error = event.error;
    };
    WEFT_ASSIGN(const std::uint64_t id, subject.engine->submit(std::move(request)));
    requests.push_back(id);
  }
  return {};
}

// Steps until every count is at least `wanted`.
Status step_until(Subject& subject, const std::vector<std::int64_t>& counts, std::int64_t wanted,
                  const std::string& error) {
  while (std::ranges::min(counts) < wanted) {
    if (!subject.engine->step()) {
      return fail(ErrorCode::kInternal, "the engine stopped before {} tokens: {}", wanted, error);
    }
  }
  return {};
}

}  // namespace

Result<double> decode_seconds(Subject& subject, std::uint64_t salt, int sequences,
                              std::int64_t prompt, std::int64_t new_tokens) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(sequences));
  std::vector<std::uint64_t> requests;
  std::string error;
  serve::SamplingParams sampling;
  sampling.ignore_eos = true;
  // The first to finish its prompt decodes while the others' still run.
  sampling.max_tokens = new_tokens + sequences + 8;
  WEFT_TRY(submit_all(subject, salt, prompt, sampling, counts, requests, error));
  WEFT_TRY(step_until(subject, counts, 1, error));
  const auto begin = Clock::now();
  for (std::int64_t step = 0; step < new_tokens; ++step) {
    if (!subject.engine->step()) return fail(ErrorCode::kInternal, "no step: {}", error);
  }
  const double seconds = seconds_since(begin);
  if (std::ranges::min(counts) < 1 + new_tokens) {
    return fail(ErrorCode::kInternal, "a decode step did not step every sequence");
  }
  for (const std::uint64_t request : requests) subject.engine->cancel(request);
  while (subject.engine->step()) {
  }
  return seconds;
}

Result<double> generate_seconds(Subject& subject, std::uint64_t salt, int sequences,
                                std::int64_t prompt, std::int64_t new_tokens, float temperature) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(sequences));
  std::vector<std::uint64_t> requests;
  std::string error;
  serve::SamplingParams sampling;
  sampling.ignore_eos = true;
  sampling.max_tokens = new_tokens;
  sampling.temperature = temperature;
  sampling.top_logprobs = temperature > 0 ? 0 : -1;  // the RL loop asks for its own
  const auto begin = Clock::now();
  WEFT_TRY(submit_all(subject, salt, prompt, sampling, counts, requests, error));
  WEFT_TRY(step_until(subject, counts, new_tokens, error));
  const double seconds = seconds_since(begin);
  while (subject.engine->step()) {
  }
  return seconds;
}

}  // namespace weft::bench
