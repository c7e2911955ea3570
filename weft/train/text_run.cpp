#include "weft/train/text_run.h"

#include <chrono>
#include <cstdio>
#include <optional>

#include "weft/base/file.h"
#include "weft/base/progress.h"
#include "weft/model/load.h"
#include "weft/state/checkpoint.h"
#include "weft/state/run_identity.h"
#include "weft/train/policy_model.h"
#include "weft/train/text_data.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The fields that fix the bits of a run at each step: what a resume may not change.
Json identity(const TrainConfig& c) {
  return {{"data.files", c.files},
          {"data.tokenizer", c.tokenizer},
          {"data.eval_fraction", c.eval_fraction},
          {"model.from", c.from},
          {"model.hidden", c.hidden},
          {"model.layers", c.layers},
          {"model.heads", c.heads},
          {"model.kv_heads", c.kv_heads},
          {"model.intermediate", c.intermediate},
          {"model.tie_embeddings", c.tie_embeddings},
          {"model.rope_theta", c.rope_theta},
          {"train.sequence_length", c.sequence_length},
          {"train.batch", c.batch},
          {"train.seed", c.seed},
          {"train.compute", c.compute},
          {"train.device", c.device},
          {"optimizer.beta1", c.beta1},
          {"optimizer.beta2", c.beta2},
          {"optimizer.epsilon", c.epsilon},
          {"optimizer.weight_decay", c.weight_decay},
          {"optimizer.max_grad_norm", c.max_grad_norm}};
}

// Lines of JSON, one after the other, in append mode.
class JsonLines {
 public:
  // Keeps the lines whose "step" is at most `last_step`, and gives them in `lines_kept`.
  static Result<JsonLines> open(const fs::path& path, std::int64_t last_step,
                                std::vector<Json>& lines_kept) {
    std::string kept;
    if (fs::exists(path)) {
      WEFT_ASSIGN(const std::string text, read_file(path));
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        // A writer that was killed may have left half a line: it is dropped.
        const auto line = parse_json(text.substr(at, end - at), path.string());
        if (line && line->is_object() && line->value("step", std::int64_t{0}) <= last_step) {
          kept.append(text, at, end - at).append("\n");
          lines_kept.push_back(*line);
        }
        at = end + 1;
      }
    }
    WEFT_TRY(write_file_atomic(path, kept));
    JsonLines lines;
    lines.file_.reset(std::fopen(path.c_str(), "a"));
    if (!lines.file_) return fail(ErrorCode::kIo, "cannot write {}", path.string());
    return lines;
  }
  void write(const Json& json) {
    std::fprintf(file_.get(), "%s\n", dump_json(json).c_str());
    std::fflush(file_.get());
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;
};

struct Source {
  model::ModelConfig config;
  std::optional<model::Model> model;  // when continuing from one
  std::shared_ptr<const model::Tokenizer> tokenizer;
  std::string chat_template;
};

Result<Source> open_source(const TrainConfig& config, const std::vector<std::string>& texts) {
  Source source;
  if (!config.from.empty()) {
    WEFT_ASSIGN(source.model, model::load_model(config.from));
    source.config = source.model->config;
    source.tokenizer = source.model->tokenizer;
    if (source.tokenizer == nullptr) {
      return fail(ErrorCode::kInvalidArgument, "model.from: {} has no tokenizer", config.from);
    }
    if (source.model->chat_template) source.chat_template = source.model->chat_template->source();
    if (config.sequence_length > source.config.max_position) {
      return fail(ErrorCode::kOutOfRange,
                  "train.sequence_length ({}) is more than the model's {} positions",
                  config.sequence_length, source.config.max_position);
    }
    return source;
  }
  if (config.tokenizer == "char") {
    WEFT_ASSIGN(const std::string alphabet, alphabet_of(texts));
    source.tokenizer = model::char_tokenizer(alphabet);
  } else {
    WEFT_ASSIGN(source.tokenizer, model::load_tokenizer(config.tokenizer));
  }
  WEFT_ASSIGN(source.config, model_of(config, source.tokenizer->vocab_size()));
  source.config.bos_token = source.tokenizer->bos();
  for (const model::TokenId id : source.tokenizer->eos()) source.config.eos_tokens.push_back(id);
  return source;
}

Result<std::unique_ptr<PolicyModel>> make_model(const TrainConfig& config, const Source& source,
                                                ThreadPool& pool) {
  constexpr std::int64_t kBf16From = 10'000'000;
  PolicyOptions options;
  const bool large = model::count(source.config).parameters >= kBf16From;
  options.compute = config.compute == "f32" || (config.compute == "auto" && !large)
                        ? nn::Compute::kF32
                        : nn::Compute::kBF16;
  options.optimizer = adamw_of(config);
  options.micro_batch_tokens = config.micro_batch_tokens;
  options.device = config.device;
  if (source.model) {
    return PolicyModel::create(source.config, source.model->weights, options, pool);
  }
  return PolicyModel::create(source.config, static_cast<std::uint64_t>(config.seed), options, pool);
}

double mean_loss(const TokenOutputs& outputs) {
  double sum = 0.0;
  for (const float logprob : outputs.logprob) sum -= logprob;
  return outputs.logprob.empty() ? 0.0 : sum / static_cast<double>(outputs.logprob.size());
}

class TextRun {
 public:
  TextRun(const TrainConfig& config, const RunOptions& options, ThreadPool& pool)
      : config_(config), options_(options), pool_(pool), root_(config.directory) {}

  Result<RunSummary> run();

 private:
  Status open();
  Status resume();
  Result<double> step(std::int64_t number);  // gives the loss
  Status evaluate();
  Status save();
  bool due(std::int64_t every) const { return every > 0 && step_ % every == 0; }
  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }

  const TrainConfig& config_;
  const RunOptions& options_;
  ThreadPool& pool_;
  fs::path root_;
  Source source_;
  TextData data_;
  std::unique_ptr<PolicyModel> model_;
  std::optional<JsonLines> metrics_, samples_;
  std::unique_ptr<Progress> progress_;
  std::int64_t step_ = 0;  // steps done
  std::int64_t saved_step_ = -1, evaluated_step_ = -1;
  RunSummary summary_;
};

Status TextRun::open() {
  WEFT_TRY(validate(config_));
  const fs::path checkpoints = root_ / "checkpoints";
  if (!options_.resume && fs::exists(checkpoints / "latest")) {
    return fail(ErrorCode::kInvalidArgument,
                "{} already holds a run; use --resume to continue it or another run.directory",
                root_.string());
  }
  std::error_code code;
  fs::create_directories(checkpoints, code);
  if (code) {
    return fail(ErrorCode::kIo, "cannot create {}: {}", checkpoints.string(), code.message());
  }
  WEFT_ASSIGN(const std::vector<std::string> texts, read_texts(config_.files));
  WEFT_ASSIGN(source_, open_source(config_, texts));
  WEFT_ASSIGN(data_, encode_texts(texts, *source_.tokenizer, config_.eval_fraction,
                                  config_.sequence_length));
  WEFT_ASSIGN(model_, make_model(config_, source_, pool_));
  if (options_.resume) WEFT_TRY(resume());
  WEFT_ASSIGN(summary_.run_id, state::identify_run(root_));
  TrainConfig resolved = config_;
  WEFT_TRY(write_file_atomic(root_ / "config.toml", schema_of(resolved).dump()));
  std::vector<Json> metrics, samples;
  WEFT_ASSIGN(metrics_, JsonLines::open(root_ / "metrics.jsonl", step_, metrics));
  WEFT_ASSIGN(samples_, JsonLines::open(root_ / "samples.jsonl", step_, samples));
  // A run killed between its last checkpoint and its end has evaluated already.
  for (const Json& line : metrics) {
    if (!line.contains("eval_loss") || line["step"] != step_) continue;
    evaluated_step_ = step_;
    summary_.eval_loss = line["eval_loss"].get<double>();
  }
  return {};
}

Status TextRun::resume() {
  std::vector<std::string> skipped;
  auto checkpoint = state::read_newest_checkpoint(root_ / "checkpoints", skipped);
  for (const std::string& line : skipped) {
    std::fprintf(stderr, "weft: warning: checkpoint passed over: %s\n", line.c_str());
  }
  if (!checkpoint) {
    // A run killed before its first checkpoint starts again from step 0.
    if (checkpoint.error().code == ErrorCode::kNotFound) return {};
    return std::unexpected(checkpoint.error());
  }
  const Json wanted = identity(config_);
  const Json& had =
      checkpoint->trainer.contains("identity") ? checkpoint->trainer["identity"] : Json::object();
  for (const auto& [key, value] : wanted.items()) {
    if (!had.contains(key) || had[key] != value) {
      return fail(ErrorCode::kInvalidArgument,
                  "{} was trained with {} = {}, the configuration says {}; resume with the old "
                  "value or use another run.directory",
                  checkpoint->path.string(), key,
                  had.contains(key) ? dump_json(had[key]) : "nothing", dump_json(value));
    }
  }
  if (auto restored = model_->restore(checkpoint->training_state, checkpoint->step); !restored) {
    return std::unexpected(restored.error().in(checkpoint->path.string()));
  }
  step_ = saved_step_ = checkpoint->step;
  return {};
}

Result<double> TextRun::step(std::int64_t number) {
  const auto start = Clock::now();
  const std::vector<TrainSequence> batch =
      training_batch(data_.train, static_cast<std::uint64_t>(config_.seed), number, config_.batch,
                     config_.sequence_length);
  const auto targets = static_cast<float>(config_.batch * config_.sequence_length);
  WEFT_ASSIGN(const TokenOutputs outputs,
              model_->accumulate(batch, {}, [&](const TokenOutputs&, TokenGradients& gradients) {
                for (float& g : gradients.logprob) g = -1.0F / targets;
              }));
  const double rate = learning_rate(schedule_of(config_), number);
  const StepResult result = model_->step(rate, config_.max_grad_norm);
  const double loss = mean_loss(outputs);
  const double seconds = seconds_since(start);
  summary_.tokens += static_cast<std::int64_t>(outputs.logprob.size());
  if ((number + 1) % config_.log_every == 0 || number + 1 == config_.steps) {
    metrics_->write({{"step", number + 1},
                     {"loss", loss},
                     {"learning_rate", rate},
                     {"grad_norm", result.grad_norm},
                     {"skipped", result.skipped},
                     {"tokens", outputs.logprob.size()},
                     {"seconds", seconds}});
  }
  if (result.skipped) {
    progress_->line(
        fmt::format("step {}: gradients are not finite; the step was skipped", number + 1));
  }
  return loss;
}

Status TextRun::evaluate() {
  if (evaluated_step_ == step_) return {};
  evaluated_step_ = step_;
  const auto batch = evaluation_batch(data_.eval, config_.eval_sequences, config_.sequence_length);
  if (!batch.empty()) {
    WEFT_ASSIGN(const TokenOutputs outputs, model_->evaluate(batch, {}));
    summary_.eval_loss = mean_loss(outputs);
    metrics_->write({{"step", step_}, {"eval_loss", summary_.eval_loss}});
    progress_->line(fmt::format("step {}: evaluation loss {:.4f}", step_, summary_.eval_loss));
  }
  if (options_.sampler && !config_.sample_prompt.empty()) {
    const std::string text = options_.sampler(model_->current_weights(), source_.tokenizer, step_);
    samples_->write({{"step", step_}, {"prompt", config_.sample_prompt}, {"text", text}});
  }
  return {};
}

Status TextRun::save() {
  if (saved_step_ == step_) return {};
  state::CheckpointContent content;
  content.config = source_.config;
  for (const model::NamedTensor& tensor : model_->state(false)) {
    content.weights.push_back(
        {tensor.name.substr(std::string_view("master/").size()), tensor.view});
  }
  content.weight_type =
      model_->options().compute == nn::Compute::kBF16 ? DType::kBF16 : DType::kF32;
  content.tokenizer = source_.tokenizer;
  content.chat_template = source_.chat_template;
  content.training_state = model_->state(true);
  content.trainer = {{"step", step_}, {"identity", identity(config_)}};
  WEFT_ASSIGN(summary_.checkpoint, state::write_checkpoint(root_ / "checkpoints", step_, content,
                                                           config_.keep_checkpoints));
  saved_step_ = step_;
  return {};
}

Result<RunSummary> TextRun::run() {
  WEFT_TRY(open());
  summary_.directory = root_;
  summary_.checkpoint = state::latest_checkpoint(root_ / "checkpoints").value_or(fs::path());
  summary_.parameters = model_->parameters();
  summary_.first_step = step_;
  progress_ = std::make_unique<Progress>("train", config_.steps, "steps",
                                         ProgressOptions{.quiet = options_.quiet});
  progress_->set(step_);
  const auto start = Clock::now();
  while (step_ < config_.steps && !stopped()) {
    WEFT_ASSIGN(summary_.train_loss, step(step_));
    ++step_;
    progress_->note(fmt::format("loss {:.4f}  {:.0f} tokens/s", summary_.train_loss,
                                static_cast<double>(summary_.tokens) / seconds_since(start)));
    progress_->advance();
    if (due(config_.eval_every)) WEFT_TRY(evaluate());
    if (due(config_.checkpoint_every)) WEFT_TRY(save());
  }
  summary_.seconds = seconds_since(start);
  summary_.tokens_per_second =
      summary_.seconds > 0 ? static_cast<double>(summary_.tokens) / summary_.seconds : 0.0;
  summary_.interrupted = step_ < config_.steps;
  if (!summary_.interrupted) WEFT_TRY(evaluate());
  WEFT_TRY(save());
  progress_->finish();
  summary_.steps = step_;
  return summary_;
}

}  // namespace

Json to_json(const RunSummary& s) {
  Json json = {{"run_id", s.run_id.str()},
               {"directory", s.directory.string()},
               {"checkpoint", s.checkpoint.string()},
               {"steps", s.steps},
               {"first_step", s.first_step},
               {"parameters", s.parameters},
               {"train_loss", s.train_loss}};
  json["eval_loss"] = s.eval_loss < 0 ? Json() : Json(s.eval_loss);
  json["tokens"] = s.tokens;
  json["seconds"] = s.seconds;
  json["tokens_per_second"] = s.tokens_per_second;
  json["interrupted"] = s.interrupted;
  return json;
}

Result<RunSummary> train_text(const TrainConfig& config, const RunOptions& options,
                              ThreadPool& pool) {
  return TextRun(config, options, pool).run();
}

}  // namespace weft::train
