#include "weft/train/pack_sequences.h"

#include <algorithm>

namespace weft::train {
namespace {

std::int64_t size(const TrainSequence& s) { return static_cast<std::int64_t>(s.tokens.size()); }

// One past the last sequence of the group that begins at `first`.
std::size_t group_end(std::span<const TrainSequence> sequences, std::size_t first) {
  std::size_t end = first + 1;
  if (sequences[first].group < 0) return end;
  while (end < sequences.size() && sequences[end].group == sequences[first].group) ++end;
  return end;
}

// Rows of one group, the shared ones counted once.
std::int64_t group_rows(std::span<const TrainSequence> group) {
  std::int64_t rows = group.size() > 1 ? group.front().shared : 0;
  for (const TrainSequence& s : group) {
    rows += size(s) - 1 - (group.size() > 1 ? s.shared : 0);
  }
  return rows;
}

}  // namespace

Status validate(std::span<const TrainSequence> sequences, const model::ModelConfig& config) {
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const TrainSequence& s = sequences[i];
    if (s.tokens.empty()) return fail(ErrorCode::kInvalidArgument, "sequence {} is empty", i);
    if (size(s) - 1 > config.max_position) {  // the last token is not run
      return fail(ErrorCode::kInvalidArgument,
                  "sequence {} has {} tokens, more than the model's {} positions and a last target",
                  i, size(s), config.max_position);
    }
    for (const model::TokenId token : s.tokens) {
      if (token < 0 || token >= config.vocab_size) {
        return fail(ErrorCode::kInvalidArgument,
                    "sequence {} has token id {}, outside the vocabulary of {}", i, token,
                    config.vocab_size);
      }
    }
    if (s.first_target < 1 || s.first_target > size(s)) {
      return fail(ErrorCode::kInvalidArgument, "sequence {}: first_target {} is outside 1..{}", i,
                  s.first_target, size(s));
    }
    if (s.group < 0) continue;
    if (s.shared < 0 || s.shared >= s.first_target) {
      return fail(ErrorCode::kInvalidArgument,
                  "sequence {}: shared {} must lie in 0..first_target - 1 ({})", i, s.shared,
                  s.first_target - 1);
    }
    if (i == 0 || sequences[i - 1].group != s.group) continue;
    const TrainSequence& before = sequences[i - 1];
    if (s.shared != before.shared ||
        !std::equal(s.tokens.begin(), s.tokens.begin() + s.shared, before.tokens.begin())) {
      return fail(ErrorCode::kInvalidArgument,
                  "sequences {} and {} of group {} do not share their first {} tokens", i - 1, i,
                  s.group, s.shared);
    }
  }
  return {};
}

std::vector<MicroBatch> split(std::span<const TrainSequence> sequences, std::int64_t max_rows) {
  std::vector<MicroBatch> batches;
  std::int64_t rows = 0;
  for (std::size_t first = 0; first < sequences.size();) {
    const std::size_t end = group_end(sequences, first);
    const std::int64_t more = group_rows(sequences.subspan(first, end - first));
    if (batches.empty() || rows + more > max_rows) {
      batches.push_back({first, first});
      rows = 0;
    }
    batches.back().end = end;
    rows += more;
    first = end;
  }
  return batches;
}

nn::PackedBatch pack(std::span<const TrainSequence> sequences) {
  nn::PackedBatch batch;
  const auto add_rows = [&](const TrainSequence& s, std::int64_t from, std::int64_t to,
                            std::int64_t parent) {
    const std::int64_t begin = batch.rows();
    for (std::int64_t p = from; p < to; ++p) {
      batch.tokens.push_back(s.tokens[static_cast<std::size_t>(p)]);
      batch.positions.push_back(static_cast<std::int32_t>(p));
    }
    if (to > from) batch.segments.push_back({begin, batch.rows(), from, parent});
    return begin;
  };
  for (std::size_t first = 0; first < sequences.size();) {
    const std::size_t end = group_end(sequences, first);
    const std::int64_t shared = end - first > 1 ? sequences[first].shared : 0;
    const std::int64_t rows_before = batch.rows(), targets_before = batch.targets();
    std::int64_t parent = -1;
    if (shared > 0) {
      parent = static_cast<std::int64_t>(batch.segments.size());
      add_rows(sequences[first], 0, shared, -1);
    }
    for (std::size_t i = first; i < end; ++i) {
      const TrainSequence& s = sequences[i];
      const std::int64_t begin = add_rows(s, shared, size(s) - 1, parent);
      for (std::int64_t target = s.first_target; target < size(s); ++target) {
        batch.target_rows.push_back(begin + target - 1 - shared);
        batch.target_tokens.push_back(s.tokens[static_cast<std::size_t>(target)]);
      }
    }
    if (batch.rows() > rows_before) batch.units.push_back(batch.rows() - rows_before);
    if (batch.targets() > targets_before) {
      batch.target_units.push_back(batch.targets() - targets_before);
    }
    first = end;
  }
  return batch;
}

}  // namespace weft::train
