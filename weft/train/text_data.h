// Token streams of text files, and the sequences of each step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/model/tokenizer.h"
#include "weft/train/policy_model.h"

namespace weft::train {

struct TextData {
  std::vector<model::TokenId> train, eval;
};

// The files' contents, in order. Refuses empty files; names the file.
Result<std::vector<std::string>> read_texts(const std::vector<std::string>& files);
// Every character of the texts once, in code point order: what char_tokenizer takes.
Result<std::string> alphabet_of(const std::vector<std::string>& texts);
// Encodes each text, ending it with the tokenizer's first end token (if it has one),
// and cuts off the last `eval_fraction` of the tokens.
Result<TextData> encode_texts(const std::vector<std::string>& texts,
                              const model::Tokenizer& tokenizer, double eval_fraction,
                              std::int64_t sequence_length);

// The sequences of one step: sample i begins at a place drawn from (seed, step, i)
// alone, so a resumed run sees what the whole one would have.
std::vector<TrainSequence> training_batch(const std::vector<model::TokenId>& tokens,
                                          std::uint64_t seed, std::int64_t step, std::int64_t batch,
                                          std::int64_t sequence_length);
// At most `sequences` evenly spread pieces of the evaluation text.
std::vector<TrainSequence> evaluation_batch(const std::vector<model::TokenId>& tokens,
                                            std::int64_t sequences, std::int64_t sequence_length);

}  // namespace weft::train
