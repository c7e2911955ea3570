#include "weft/train/text_data.h"

#include <algorithm>
#include <set>

#include "weft/base/file.h"
#include "weft/base/rng.h"

namespace weft::train {

Result<std::vector<std::string>> read_texts(const std::vector<std::string>& files) {
  std::vector<std::string> texts;
  for (const std::string& file : files) {
    WEFT_ASSIGN(std::string text, read_file(file));
    if (text.empty()) return fail(ErrorCode::kInvalidArgument, "{} is empty", file);
    texts.push_back(std::move(text));
  }
  return texts;
}

Result<std::string> alphabet_of(const std::vector<std::string>& texts) {
  std::set<std::string> characters;  // UTF-8 sorts by code point
  for (const std::string& text : texts) {
    for (std::size_t at = 0; at < text.size();) {
      const auto lead = static_cast<unsigned char>(text[at]);
      const std::size_t size = lead < 0x80         ? 1
                               : lead >> 5 == 0x6  ? 2
                               : lead >> 4 == 0xe  ? 3
                               : lead >> 3 == 0x1e ? 4
                                                   : 0;
      bool valid = size > 0 && at + size <= text.size();
      for (std::size_t i = 1; valid && i < size; ++i) {
        valid = (static_cast<unsigned char>(text[at + i]) & 0xc0U) == 0x80U;
      }
      if (!valid) {
        return fail(ErrorCode::kInvalidArgument,
                    "the text is not UTF-8 at byte {}; a char vocabulary needs UTF-8", at);
      }
      characters.insert(text.substr(at, size));
      at += size;
    }
  }
  std::string alphabet;
  for (const std::string& character : characters) alphabet += character;
  return alphabet;
}

Result<TextData> encode_texts(const std::vector<std::string>& texts,
                              const model::Tokenizer& tokenizer, double eval_fraction,
                              std::int64_t sequence_length) {
  std::vector<model::TokenId> all;
  for (const std::string& text : texts) {
    const auto ids = tokenizer.encode(text, {.add_special = false});
    all.insert(all.end(), ids.begin(), ids.end());
    if (!tokenizer.eos().empty()) all.push_back(tokenizer.eos().front());
  }
  const auto total = static_cast<std::int64_t>(all.size());
  const auto held_out = static_cast<std::int64_t>(static_cast<double>(total) * eval_fraction);
  if (total - held_out < sequence_length + 1) {
    return fail(ErrorCode::kInvalidArgument,
                "the text has {} tokens for training, less than one sequence of {} needs; give "
                "more text or a smaller train.sequence_length",
                total - held_out, sequence_length);
  }
  TextData data;
  data.eval.assign(all.end() - held_out, all.end());
  all.resize(static_cast<std::size_t>(total - held_out));
  data.train = std::move(all);
  return data;
}

std::vector<TrainSequence> training_batch(const std::vector<model::TokenId>& tokens,
                                          std::uint64_t seed, std::int64_t step, std::int64_t batch,
                                          std::int64_t sequence_length) {
  const std::int64_t places = static_cast<std::int64_t>(tokens.size()) - sequence_length;
  std::vector<TrainSequence> sequences;
  for (std::int64_t i = 0; i < batch; ++i) {
    Rng rng(seed, RngUse::kData, static_cast<std::uint64_t>(step), static_cast<std::uint32_t>(i));
    const std::int64_t begin = rng.next_below(static_cast<std::uint32_t>(places));
    sequences.push_back(
        {.tokens = {tokens.begin() + begin, tokens.begin() + begin + sequence_length + 1}});
  }
  return sequences;
}

std::vector<TrainSequence> evaluation_batch(const std::vector<model::TokenId>& tokens,
                                            std::int64_t sequences, std::int64_t sequence_length) {
  const auto total = static_cast<std::int64_t>(tokens.size());
  const std::int64_t size = std::min(sequence_length + 1, total);
  std::vector<TrainSequence> batch;
  if (size < 2) return batch;
  const std::int64_t count = std::clamp<std::int64_t>(total / size, 1, sequences);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = count == 1 ? 0 : (total - size) * i / (count - 1);
    batch.push_back({.tokens = {tokens.begin() + begin, tokens.begin() + begin + size}});
  }
  return batch;
}

}  // namespace weft::train
