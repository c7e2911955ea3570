#include "weft/model/bpe.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "weft/model/unicode_text.h"

namespace weft::model {
namespace {

constexpr std::string_view kSpaceSymbol = "\u2581";
// Words of up to this many symbols are merged by scanning, longer ones with a heap.
constexpr std::size_t kShortWord = 24;
// sentencepiece's and tiktoken's longest tokens have 16 to 128 characters.
constexpr std::size_t kLongestScoredToken = 1024;

std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) {
  return static_cast<std::uint64_t>(left) << 32 | right;
}

}  // namespace

BpeWorkspace::BpeWorkspace() : entries_(kEntries) {}

Result<BpeModel> BpeModel::make(const ModelSpec& spec, const Vocabulary& vocabulary,
                                std::string_view where) {
  BpeModel model;
  model.byte_level_ = spec.byte_level;
  model.fuse_unk_ = spec.fuse_unk;
  model.byte_fallback_ = spec.byte_fallback;
  model.ignore_merges_ = spec.ignore_merges;
  model.unk_ = spec.unk >= 0 ? static_cast<std::uint32_t>(spec.unk) : kNone;
  model.vocabulary_size_ = static_cast<std::uint32_t>(spec.tokens.size());
  const auto symbol_of = [&](const std::string& text) {
    const auto found = vocabulary.find(text);
    return found == vocabulary.end() ? kNone : static_cast<std::uint32_t>(found->second);
  };
  model.fallback_symbol_.fill(kNone);
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string& text = byte_character(static_cast<unsigned char>(byte));
    model.byte_symbol_[byte] = symbol_of(text);
    model.last_byte_symbol_[byte] =
        spec.end_of_word.empty() ? model.byte_symbol_[byte] : symbol_of(text + spec.end_of_word);
  }
  if (spec.byte_fallback) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      model.fallback_symbol_[byte] = symbol_of(fmt::format("<0x{:02X}>", byte));
    }
  }
  if (!spec.byte_level) {
    model.cut_at_space_ = spec.user_defined.empty() && !spec.ignore_merges;
    for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
      const std::string& text = spec.tokens[id];
      if (text.empty() || (!spec.unmergeable.empty() && spec.unmergeable[id])) continue;
      const CodePoint point = decode_utf8(text, 0);
      if (!point.valid) continue;
      if (point.length == text.size()) {
        model.characters_.emplace(point.value, static_cast<std::uint32_t>(id));
      }
      if (!spec.end_of_word.empty() &&
          std::string_view(text).substr(point.length) == spec.end_of_word) {
        model.last_characters_.emplace(point.value, static_cast<std::uint32_t>(id));
      }
      // Where U+2581 only leads, merges never cross from a character to it.
      const std::size_t body = text.find_first_not_of(kSpaceSymbol);
      if (body != std::string::npos && text.find(kSpaceSymbol, body) != std::string::npos) {
        model.cut_at_space_ = false;
      }
    }
  }
  if (spec.by_score) {
    WEFT_TRY(model.add_scored_merges(spec, where));
  } else {
    WEFT_TRY(model.add_ranked_merges(spec, vocabulary, where));
  }
  if (spec.ignore_merges) {
    std::vector<std::pair<std::string_view, std::int32_t>> entries;
    std::vector<std::string> bytes(spec.tokens.size());
    for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
      std::optional<std::string> raw = spec.tokens[id];
      if (spec.byte_level) raw = alphabet_to_bytes(spec.tokens[id]);
      if (!raw) continue;
      bytes[id] = std::move(*raw);
      entries.emplace_back(bytes[id], static_cast<std::int32_t>(id));
    }
    model.words_ = ByteTrie(std::move(entries));
  }
  std::vector<std::pair<std::string_view, std::int32_t>> frozen;
  for (const TokenId id : spec.user_defined) frozen.emplace_back(spec.tokens[id], id);
  model.user_defined_ = ByteTrie(std::move(frozen));
  return model;
}

Status BpeModel::add_ranked_merges(const ModelSpec& spec, const Vocabulary& vocabulary,
                                   std::string_view where) {
  std::vector<Merge> merges;
  merges.reserve(spec.merges.size());
  std::string joined;
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto [left, right] = spec.merges[rank];
    std::string_view tail = spec.tokens[right];
    if (!spec.continuing_prefix.empty() && tail.starts_with(spec.continuing_prefix)) {
      tail.remove_prefix(spec.continuing_prefix.size());
    }
    joined = spec.tokens[left];
    joined += tail;
    const auto found = vocabulary.find(joined);
    if (found == vocabulary.end()) {
      return fail(ErrorCode::kCorrupt,
                  "{}: merge {} makes \"{}\", which is not in the vocabulary; the vocabulary and "
                  "the merges do not belong together",
                  where, rank, joined);
    }
    merges.push_back({pair_of(static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(right)),
                      static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(found->second)});
  }
  build_table(std::move(merges));
  return {};
}

// Every way to make a token of two others is a merge with the rank of its score.
Status BpeModel::add_scored_merges(const ModelSpec& spec, std::string_view where) {
  if (spec.scores.size() != spec.tokens.size()) {
    return fail(ErrorCode::kCorrupt, "{}: {} scores for {} tokens", where, spec.scores.size(),
                spec.tokens.size());
  }
  std::vector<double> levels(spec.scores);
  std::ranges::sort(levels, std::greater<>());
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  // Token texts as the symbols see them: bytes of a byte-level model, else UTF-8.
  std::vector<std::string> texts(spec.tokens.size());
  std::unordered_map<std::string_view, std::uint32_t> symbols;
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.unmergeable.empty() && spec.unmergeable[id]) continue;
    if (spec.byte_level) {
      std::optional<std::string> bytes = alphabet_to_bytes(spec.tokens[id]);
      if (!bytes) continue;
      texts[id] = std::move(*bytes);
    } else {
      texts[id] = spec.tokens[id];
    }
    if (texts[id].size() > kLongestScoredToken) {
      return fail(ErrorCode::kUnsupported, "{}: token {} has {} bytes; at most {} are read", where,
                  id, texts[id].size(), kLongestScoredToken);
    }
    if (!texts[id].empty()) symbols.emplace(texts[id], static_cast<std::uint32_t>(id));
  }
  // Characters that are no token but part of one become symbols of their own.
  std::vector<std::string> extra;
  if (!spec.byte_level) {
    for (const std::string& text : texts) {
      for (std::size_t at = 0; at < text.size();) {
        const CodePoint point = decode_utf8(text, at);
        if (point.valid && !characters_.contains(point.value)) {
          characters_.emplace(point.value,
                              vocabulary_size_ + static_cast<std::uint32_t>(extra.size()));
          extra.emplace_back(text, at, point.length);
        }
        at += point.length;
      }
    }
    extra_characters_ = std::move(extra);
    for (std::size_t i = 0; i < extra_characters_.size(); ++i) {
      symbols.emplace(extra_characters_[i], vocabulary_size_ + static_cast<std::uint32_t>(i));
    }
  }
  std::vector<Merge> merges;
  for (std::size_t id = 0; id < texts.size(); ++id) {
    const std::string_view text = texts[id];
    if (text.empty()) continue;
    const auto level = std::ranges::lower_bound(levels, spec.scores[id], std::greater<>());
    const auto rank = static_cast<std::uint32_t>(level - levels.begin());
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = symbols.find(text.substr(0, cut));
      if (left == symbols.end()) continue;
      const auto right = symbols.find(text.substr(cut));
      if (right == symbols.end()) continue;
      merges.push_back(
          {pair_of(left->second, right->second), rank, static_cast<std::uint32_t>(id)});
    }
  }
  build_table(std::move(merges));
  return {};
}

void BpeModel::build_table(std::vector<Merge> merges) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(16, merges.size() * 2));
  table_.assign(size, Merge{});
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
  for (const Merge& merge : merges) {
    std::uint64_t slot = merge.pair * 0x9E3779B97F4A7C15ULL >> shift_;
    while (table_[slot].rank != kNone && table_[slot].pair != merge.pair) slot = (slot + 1) & mask_;
    // Of a pair that is listed twice the last rank counts, as in a map.
    table_[slot] = merge;
  }
}

const BpeModel::Merge* BpeModel::find(std::uint32_t left, std::uint32_t right) const {
  const std::uint64_t pair = pair_of(left, right);
  std::uint64_t slot = pair * 0x9E3779B97F4A7C15ULL >> shift_;
  for (;;) {
    const Merge& merge = table_[slot];
    if (merge.pair == pair) return merge.rank == kNone ? nullptr : &merge;
    if (merge.rank == kNone) return nullptr;
    slot = (slot + 1) & mask_;
  }
}

void BpeModel::encode(std::string_view word, BpeWorkspace& workspace,
                      std::vector<TokenId>& ids) const {
  if (word.empty()) return;
  if (!cut_at_space_) {
    encode_segment(word, workspace, ids);
    return;
  }
  std::size_t begin = 0;
  for (std::size_t at = 0;;) {
    const std::size_t space = word.find(kSpaceSymbol, at);
    if (space == std::string_view::npos) break;
    // A run of U+2581 stays with what follows it.
    const bool continues = space >= kSpaceSymbol.size() &&
                           word.substr(space - kSpaceSymbol.size()).starts_with(kSpaceSymbol);
    if (!continues && space > begin) {
      encode_segment(word.substr(begin, space - begin), workspace, ids);
      begin = space;
    }
    at = space + kSpaceSymbol.size();
  }
  encode_segment(word.substr(begin), workspace, ids);
}

void BpeModel::encode_segment(std::string_view word, BpeWorkspace& workspace,
                              std::vector<TokenId>& ids) const {
  if (word.size() > std::tuple_size_v<decltype(BpeWorkspace::Entry::word)>) {
    encode_uncached(word, workspace, ids);
    return;
  }
  const std::uint64_t hash = XXH3_64bits(word.data(), word.size());
  BpeWorkspace::Entry& entry = workspace.entries_[hash % BpeWorkspace::kEntries];
  if (entry.word_bytes == word.size() &&
      std::memcmp(entry.word.data(), word.data(), word.size()) == 0) {
    ids.insert(ids.end(), entry.id.begin(), entry.id.begin() + entry.ids);
    return;
  }
  const std::size_t before = ids.size();
  encode_uncached(word, workspace, ids);
  const std::size_t count = ids.size() - before;
  if (count > entry.id.size()) return;
  entry.word_bytes = static_cast<std::uint8_t>(word.size());
  entry.ids = static_cast<std::uint8_t>(count);
  std::memcpy(entry.word.data(), word.data(), word.size());
  std::copy(ids.end() - static_cast<std::ptrdiff_t>(count), ids.end(), entry.id.begin());
}

void BpeModel::encode_uncached(std::string_view word, BpeWorkspace& workspace,
                               std::vector<TokenId>& ids) const {
  if (ignore_merges_) {
    std::int32_t value = 0;
    if (words_.longest(word, 0, value) == word.size()) {
      ids.push_back(value);
      return;
    }
  }
  const auto run = [&](std::string_view part) {
    workspace.ids_.clear();
    split_into_symbols(part, workspace.ids_);
    if (workspace.ids_.size() <= kShortWord) {
      merge_short(workspace);
    } else {
      merge_long(workspace);
    }
    emit(workspace.ids_, ids);
  };
  if (user_defined_.empty()) {
    run(word);
    return;
  }
  std::size_t begin = 0;
  for (std::size_t at = 0; at < word.size();) {
    std::int32_t value = 0;
    const std::size_t length = user_defined_.longest(word, at, value);
    if (length == 0) {
      at += decode_utf8(word, at).length;
      continue;
    }
    if (at > begin) run(word.substr(begin, at - begin));
    ids.push_back(value);
    at += length;
    begin = at;
  }
  if (begin < word.size()) run(word.substr(begin));
}

void BpeModel::split_into_symbols(std::string_view word,
                                  std::vector<std::uint32_t>& symbols) const {
  if (byte_level_) {
    for (std::size_t i = 0; i < word.size(); ++i) {
      const auto byte = static_cast<unsigned char>(word[i]);
      const std::uint32_t symbol =
          i + 1 == word.size() ? last_byte_symbol_[byte] : byte_symbol_[byte];
      if (symbol != kNone) {
        symbols.push_back(symbol);
      } else {
        push_unknown({}, symbols);
      }
    }
    return;
  }
  for (std::size_t at = 0; at < word.size();) {
    const CodePoint point = decode_utf8(word, at);
    const bool last = at + point.length == word.size();
    const auto& characters = last && !last_characters_.empty() ? last_characters_ : characters_;
    const auto found = point.valid ? characters.find(point.value) : characters.end();
    if (found != characters.end()) {
      symbols.push_back(found->second);
    } else {
      push_unknown(word.substr(at, point.length), symbols);
    }
    at += point.length;
  }
}

void BpeModel::push_unknown(std::string_view bytes, std::vector<std::uint32_t>& symbols) const {
  if (byte_fallback_ && !bytes.empty() && std::ranges::all_of(bytes, [&](char byte) {
        return fallback_symbol_[static_cast<unsigned char>(byte)] != kNone;
      })) {
    for (const char byte : bytes) {
      symbols.push_back(fallback_symbol_[static_cast<unsigned char>(byte)]);
    }
    return;
  }
  if (unk_ == kNone) return;  // without an unknown token the character is dropped
  if (fuse_unk_ && !symbols.empty() && symbols.back() == unk_) return;
  symbols.push_back(unk_);
}

// Symbols that are characters without a token of their own come out as unknown.
void BpeModel::emit(std::span<const std::uint32_t> symbols, std::vector<TokenId>& ids) const {
  for (const std::uint32_t symbol : symbols) {
    if (symbol < vocabulary_size_) {
      ids.push_back(static_cast<TokenId>(symbol));
      continue;
    }
    std::vector<std::uint32_t> unknown;
    if (!ids.empty() && ids.back() >= 0 && static_cast<std::uint32_t>(ids.back()) == unk_ &&
        fuse_unk_ && !byte_fallback_) {
      continue;
    }
    push_unknown(extra_characters_[symbol - vocabulary_size_], unknown);
    for (const std::uint32_t id : unknown) ids.push_back(static_cast<TokenId>(id));
  }
}

void BpeModel::merge_short(BpeWorkspace& workspace) const {
  std::vector<std::uint32_t>& ids = workspace.ids_;
  std::vector<std::uint32_t>& ranks = workspace.ranks_;
  if (ids.size() < 2) return;
  ranks.resize(ids.size());
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) ranks[i] = rank_of(ids[i], ids[i + 1]);
  std::size_t count = ids.size();
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNone) break;
    ids[best] = find(ids[best], ids[best + 1])->result;
    std::copy(ids.begin() + best + 2, ids.begin() + count, ids.begin() + best + 1);
    std::copy(ranks.begin() + best + 2, ranks.begin() + count, ranks.begin() + best + 1);
    --count;
    if (best + 1 < count) ranks[best] = rank_of(ids[best], ids[best + 1]);
    if (best > 0) ranks[best - 1] = rank_of(ids[best - 1], ids[best]);
  }
  ids.resize(count);
}

void BpeModel::merge_long(BpeWorkspace& workspace) const {
  std::vector<std::uint32_t>& ids = workspace.ids_;
  auto& symbols = workspace.symbols_;
  auto& heap = workspace.heap_;
  const auto count = static_cast<std::uint32_t>(ids.size());
  symbols.resize(count);
  heap.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t rank = i + 1 < count ? rank_of(ids[i], ids[i + 1]) : kNone;
    symbols[i] = {ids[i], i + 1 < count ? i + 1 : kNone, i > 0 ? i - 1 : kNone, rank};
    if (rank != kNone) heap.push_back({rank, i});
  }
  const auto worse = [](const BpeWorkspace::Candidate& a, const BpeWorkspace::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  std::ranges::make_heap(heap, worse);
  const auto refresh = [&](std::uint32_t position) {
    BpeWorkspace::Symbol& symbol = symbols[position];
    symbol.rank = symbol.next == kNone ? kNone : rank_of(symbol.id, symbols[symbol.next].id);
    if (symbol.rank == kNone) return;
    heap.push_back({symbol.rank, position});
    std::ranges::push_heap(heap, worse);
  };
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, worse);
    const BpeWorkspace::Candidate top = heap.back();
    heap.pop_back();
    BpeWorkspace::Symbol& left = symbols[top.position];
    if (left.rank != top.rank) continue;  // it was merged meanwhile
    BpeWorkspace::Symbol& right = symbols[left.next];
    left.id = find(left.id, right.id)->result;
    right.rank = kNone;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].previous = top.position;
    refresh(top.position);
    if (left.previous != kNone) refresh(left.previous);
  }
  ids.clear();
  for (std::uint32_t i = 0; i != kNone; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace weft::model
