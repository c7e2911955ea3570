// From the caller's sequences to packed batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/result.h"
#include "weft/model/config.h"
#include "weft/nn/packed_batch.h"
#include "weft/train/policy_model.h"

namespace weft::train {

// Refuses empty or too long sequences, ids outside the vocabulary, targets outside
// the sequence, and groups that do not share what they say; names the sequence.
Status validate(std::span<const TrainSequence> sequences, const model::ModelConfig& config);

// Sequences [begin, end) that run together: whole groups, at most `max_rows` rows
// unless one group alone has more.
struct MicroBatch {
  std::size_t begin = 0, end = 0;
};
std::vector<MicroBatch> split(std::span<const TrainSequence> sequences, std::int64_t max_rows);

// The last token of a sequence is only a target, not a row.
nn::PackedBatch pack(std::span<const TrainSequence> sequences);

}  // namespace weft::train
