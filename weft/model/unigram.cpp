#include "weft/model/unigram.h"

#include <algorithm>
#include <cmath>

#include "weft/model/unicode_text.h"

namespace weft::model {
namespace {

// What an unknown character costs below the rarest piece (sentencepiece,
// unigram_model.cc, kUnkPenalty; the same in `tokenizers`).
constexpr double kUnknownPenalty = 10;

}  // namespace

Result<UnigramModel> UnigramModel::make(const ModelSpec& spec,
                                        const BpeModel::Vocabulary& vocabulary,
                                        std::string_view where) {
  if (spec.scores.size() != spec.tokens.size()) {
    return fail(ErrorCode::kCorrupt, "{}: {} scores for {} tokens", where, spec.scores.size(),
                spec.tokens.size());
  }
  UnigramModel model;
  model.scores_ = spec.scores;
  model.unk_ = spec.unk;
  model.byte_fallback_ = spec.byte_fallback;
  model.float_sums_ = spec.float_sums;
  model.user_defined_.assign(spec.tokens.size(), false);
  for (const TokenId id : spec.user_defined) model.user_defined_[id] = true;
  model.byte_token_.fill(-1);
  if (spec.byte_fallback) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      const auto found = vocabulary.find(fmt::format("<0x{:02X}>", byte));
      if (found != vocabulary.end()) model.byte_token_[byte] = found->second;
    }
  }
  std::vector<std::pair<std::string_view, std::int32_t>> entries;
  bool any = false;
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!std::isfinite(spec.scores[id])) {
      return fail(ErrorCode::kCorrupt, "{}: the score of token {} is not a number", where, id);
    }
    if (!spec.unmergeable.empty() && spec.unmergeable[id]) continue;
    entries.emplace_back(spec.tokens[id], static_cast<std::int32_t>(id));
    if (model.user_defined_[id]) continue;
    model.lowest_ = any ? std::min(model.lowest_, spec.scores[id]) : spec.scores[id];
    model.highest_ = any ? std::max(model.highest_, spec.scores[id]) : spec.scores[id];
    any = true;
  }
  model.pieces_ = ByteTrie(std::move(entries));
  return model;
}

void UnigramModel::encode(std::string_view word, std::vector<TokenId>& ids) const {
  if (float_sums_) {
    encode_with<float>(word, ids);
  } else {
    encode_with<double>(word, ids);
  }
}

template <class Score>
void UnigramModel::encode_with(std::string_view word, std::vector<TokenId>& ids) const {
  struct Node {
    Score score = 0;
    std::size_t start = std::string_view::npos;  // where the best piece that ends here begins
    TokenId id = -1;
  };
  std::vector<Node> ends(word.size() + 1);
  const Score unknown = static_cast<Score>(lowest_) - static_cast<Score>(kUnknownPenalty);
  const auto offer = [&](std::size_t start, std::size_t end, Score score, TokenId id) {
    const Score candidate = score + ends[start].score;
    Node& node = ends[end];
    if (node.start == std::string_view::npos || candidate > node.score) {
      node = {candidate, start, id};
    }
  };
  for (std::size_t start = 0; start < word.size();) {
    const std::size_t character = decode_utf8(word, start).length;
    bool single = false;
    pieces_.prefixes(word, start, [&](std::size_t length, std::int32_t id) {
      // User-defined pieces win over any cut of theirs (sentencepiece).
      const Score score =
          user_defined_[id]
              ? static_cast<Score>(static_cast<Score>(length) * static_cast<Score>(highest_) -
                                   Score(0.1))
              : static_cast<Score>(scores_[id]);
      offer(start, start + length, score, id);
      if (length == character) single = true;
    });
    if (!single) offer(start, start + character, unknown, unk_);
    start += character;
  }
  std::vector<std::pair<std::size_t, TokenId>> path;  // start and id, last first
  for (std::size_t end = word.size(); end > 0; end = ends[end].start) {
    path.emplace_back(ends[end].start, ends[end].id);
  }
  // Unknown characters in a row are one unknown piece.
  for (std::size_t i = path.size(); i-- > 0;) {
    const auto [start, id] = path[i];
    if (id != unk_) {
      ids.push_back(id);
      continue;
    }
    while (i > 0 && path[i - 1].second == unk_) --i;
    const std::size_t end = i > 0 ? path[i - 1].first : word.size();
    const std::string_view unknown_part = word.substr(start, end - start);
    const bool spelled = byte_fallback_ && std::ranges::all_of(unknown_part, [&](char byte) {
                           return byte_token_[static_cast<unsigned char>(byte)] >= 0;
                         });
    if (spelled) {
      for (const char byte : unknown_part) {
        ids.push_back(byte_token_[static_cast<unsigned char>(byte)]);
      }
    } else if (unk_ >= 0) {
      ids.push_back(unk_);
    }
  }
}

}  // namespace weft::model
