#include "weft/train/train_config.h"

namespace weft::train {

ConfigSchema schema_of(TrainConfig& c) {
  ConfigSchema s;
  s.field("data.files", &c.files).required().help("text files, UTF-8, one after the other");
  s.field("data.tokenizer", &c.tokenizer)
      .help(
          "char (the characters of the text), or a tokenizer file, or a model's folder; "
          "ignored with model.from");
  s.field("data.eval_fraction", &c.eval_fraction)
      .range(0, 0.5)
      .help("share at the end of the text that is kept for evaluation");
  s.field("model.from", &c.from).help("model to continue from; empty: random weights, shape below");
  s.field("model.hidden", &c.hidden).range(8, 65536).help("width of the residual stream");
  s.field("model.layers", &c.layers).range(1, 1000);
  s.field("model.heads", &c.heads).range(1, 1024);
  s.field("model.kv_heads", &c.kv_heads).range(0, 1024).help("0: as many as heads");
  s.field("model.intermediate", &c.intermediate)
      .range(0, 1 << 20)
      .help("width of the MLP; 0: 8/3 of hidden, in sixteens");
  s.field("model.tie_embeddings", &c.tie_embeddings);
  s.field("model.rope_theta", &c.rope_theta).range(1, 1e9);
  s.field("train.steps", &c.steps).range(1, 1e8).help("optimizer steps");
  s.field("train.sequence_length", &c.sequence_length).range(2, 1 << 20).help("tokens");
  s.field("train.batch", &c.batch).range(1, 1 << 20).help("sequences of one step");
  s.field("train.micro_batch_tokens", &c.micro_batch_tokens)
      .range(1, 1 << 24)
      .help("tokens of one forward pass; changes memory and speed, no bit of the result");
  s.field("train.seed", &c.seed).range(0, 9e15);
  s.field("train.compute", &c.compute)
      .choices({"auto", "bf16", "f32"})
      .help("matrix products; auto: bf16 from 10 million parameters on");
  s.field("train.device", &c.device)
      .help("where forward and backward run: cpu, cuda, cuda:N or auto");
  s.field("train.log_every", &c.log_every).range(1, 1e8).help("steps between lines of metrics");
  s.field("train.eval_every", &c.eval_every).range(0, 1e8).help("0: at the end only");
  s.field("train.eval_sequences", &c.eval_sequences).range(1, 1 << 20);
  s.field("train.checkpoint_every", &c.checkpoint_every).range(0, 1e8).help("0: at the end only");
  s.field("train.keep_checkpoints", &c.keep_checkpoints).range(0, 1e6).help("newest; 0: all");
  s.field("optimizer.learning_rate", &c.learning_rate).range(0, 100).help("the peak");
  s.field("optimizer.schedule", &c.schedule).choices({"constant", "linear", "cosine", "wsd"});
  s.field("optimizer.warmup_steps", &c.warmup_steps).range(0, 1e8);
  s.field("optimizer.decay_steps", &c.decay_steps).range(0, 1e8).help("wsd only");
  s.field("optimizer.final_fraction", &c.final_fraction).range(0, 1).help("of the peak");
  s.field("optimizer.max_grad_norm", &c.max_grad_norm).range(0, 1e9).help("0: no clipping");
  s.field("optimizer.beta1", &c.beta1).range(0, 0.99999);
  s.field("optimizer.beta2", &c.beta2).range(0, 0.99999999);
  s.field("optimizer.epsilon", &c.epsilon).range(0, 1);
  s.field("optimizer.weight_decay", &c.weight_decay).range(0, 100).help("on matrices");
  s.field("sample.prompt", &c.sample_prompt).help("continued at every evaluation; empty: not");
  s.field("sample.tokens", &c.sample_tokens).range(1, 1 << 16);
  s.field("sample.temperature", &c.sample_temperature).range(0, 100);
  s.field("run.directory", &c.directory).help("where metrics, checkpoints and samples go");
  return s;
}

Schedule schedule_of(const TrainConfig& config) {
  return {.kind = schedule_from_string(config.schedule).value_or(ScheduleKind::kConstant),
          .peak = config.learning_rate,
          .steps = config.steps,
          .warmup_steps = config.warmup_steps,
          .decay_steps = config.decay_steps,
          .final_fraction = config.final_fraction};
}

AdamWOptions adamw_of(const TrainConfig& config) {
  return {.beta1 = config.beta1,
          .beta2 = config.beta2,
          .epsilon = config.epsilon,
          .weight_decay = config.weight_decay};
}

Status validate(const TrainConfig& config) {
  if (config.files.empty()) {
    return fail(ErrorCode::kInvalidArgument, "data.files names no file");
  }
  WEFT_TRY(schedule_from_string(config.schedule));
  return validate(schedule_of(config));
}

Result<model::ModelConfig> model_of(const TrainConfig& config, std::int64_t vocab_size) {
  if (config.hidden % config.heads != 0) {
    return fail(ErrorCode::kInvalidArgument,
                "model.hidden ({}) must be a multiple of model.heads ({})", config.hidden,
                config.heads);
  }
  model::ModelConfig m;
  m.family = model::Family::kLlama;
  m.vocab_size = vocab_size;
  m.hidden = config.hidden;
  m.layers = config.layers;
  m.heads = config.heads;
  m.kv_heads = config.kv_heads == 0 ? config.heads : config.kv_heads;
  m.head_dim = config.hidden / config.heads;
  m.intermediate =
      config.intermediate == 0 ? (config.hidden * 8 / 3 + 15) / 16 * 16 : config.intermediate;
  m.max_position = config.sequence_length;
  m.tie_embeddings = config.tie_embeddings;
  m.rope.theta = config.rope_theta;
  WEFT_TRY(model::validate(m));
  return m;
}

}  // namespace weft::train
