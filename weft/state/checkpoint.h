// Checkpoint directories: docs/formats/checkpoint.md. Written to a temporary
// name, synced, renamed, and only then named by `latest`: a writer killed at any
// moment leaves the previous checkpoint usable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/model/config.h"
#include "weft/model/tokenizer.h"
#include "weft/model/weights.h"

namespace weft::state {

// What goes into one checkpoint. Views need to stay valid during the call only.
struct CheckpointContent {
  model::ModelConfig config;
  std::vector<model::NamedTensor> weights;            // f32, canonical names
  DType weight_type = DType::kBF16;                   // of model.safetensors: kF32 or kBF16
  std::shared_ptr<const model::Tokenizer> tokenizer;  // null: no tokenizer files
  std::string chat_template;                          // source, or empty
  std::vector<model::NamedTensor> training_state;     // PolicyModel::state(true); empty: none
  Json trainer = Json::object();                      // counters, seeds, cursors of the trainer
};

// Writes root/step-<8 digits>/ and points root/latest at it, then removes the
// oldest checkpoints beyond `keep_last` (0 = keep all). Gives the directory.
Result<std::filesystem::path> write_checkpoint(const std::filesystem::path& root, std::int64_t step,
                                               const CheckpointContent& content,
                                               std::int64_t keep_last);

// A model directory without optimizer state, as transformers and `weft serve` load it.
Status write_model_directory(const std::filesystem::path& directory,
                             const CheckpointContent& content);

// The directory that root/latest names; kNotFound if there is none.
Result<std::filesystem::path> latest_checkpoint(const std::filesystem::path& root);

// Reads back a checkpoint after checking every file against the MANIFEST. Errors
// name the file: kCorrupt when a digest or size differs, kNotFound when it is gone.
struct Checkpoint {
  std::filesystem::path path;
  std::int64_t step = 0;
  model::ModelConfig config;
  model::WeightSet training_state;
  Json trainer;
};
Result<Checkpoint> read_checkpoint(const std::filesystem::path& directory);
// The newest checkpoint of `root` that verifies. Damaged ones are passed over, each
// with a sentence in `skipped`.
Result<Checkpoint> read_newest_checkpoint(const std::filesystem::path& root,
                                          std::vector<std::string>& skipped);

}  // namespace weft::state
