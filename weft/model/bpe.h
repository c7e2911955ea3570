// Byte-pair encoding of one word: merge the neighbours with the best rank, the
// left one first, until none is left (Sennrich et al. 2016, arXiv:1508.07909).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/model/byte_trie.h"
#include "weft/model/tokenizer_spec.h"

namespace weft::model {

// What one call needs besides the model: a cache of words and room to merge. Used
// by one thread at a time and with one model only.
class BpeWorkspace {
 public:
  BpeWorkspace();

 private:
  friend class BpeModel;
  // Direct-mapped; a word that does not fit is not cached.
  static constexpr std::size_t kEntries = 8192;
  struct Entry {
    std::uint8_t word_bytes = 0;  // 0 = empty
    std::uint8_t ids = 0;
    std::array<char, 22> word;
    std::array<TokenId, 6> id;
  };
  struct Symbol {
    std::uint32_t id;
    std::uint32_t next, previous;  // positions; kNone at the ends
    std::uint32_t rank;            // of the merge with the next one
  };
  struct Candidate {
    std::uint32_t rank, position;
  };
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> ids_;
  std::vector<std::uint32_t> ranks_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

// Immutable; one workspace per thread.
class BpeModel {
 public:
  using Vocabulary = std::unordered_map<std::string_view, TokenId>;
  // `vocabulary` maps texts to ids of `spec.tokens`; both need not outlive the call.
  static Result<BpeModel> make(const ModelSpec& spec, const Vocabulary& vocabulary,
                               std::string_view where);

  // Appends the ids of `word`: valid UTF-8 unless the model is byte-level. Time
  // O(n log n) in its length.
  void encode(std::string_view word, BpeWorkspace& workspace, std::vector<TokenId>& ids) const;

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  struct Merge {
    std::uint64_t pair = ~0ULL;  // left id << 32 | right id
    std::uint32_t rank = kNone;
    std::uint32_t result = 0;
  };

  Status add_ranked_merges(const ModelSpec& spec, const Vocabulary& vocabulary,
                           std::string_view where);
  Status add_scored_merges(const ModelSpec& spec, std::string_view where);
  void build_table(std::vector<Merge> merges);
  const Merge* find(std::uint32_t left, std::uint32_t right) const;
  std::uint32_t rank_of(std::uint32_t left, std::uint32_t right) const {
    const Merge* merge = find(left, right);
    return merge ? merge->rank : kNone;
  }
  void encode_segment(std::string_view word, BpeWorkspace& workspace,
                      std::vector<TokenId>& ids) const;
  void encode_uncached(std::string_view word, BpeWorkspace& workspace,
                       std::vector<TokenId>& ids) const;
  void split_into_symbols(std::string_view word, std::vector<std::uint32_t>& symbols) const;
  void merge_short(BpeWorkspace& workspace) const;
  void merge_long(BpeWorkspace& workspace) const;
  void emit(std::span<const std::uint32_t> symbols, std::vector<TokenId>& ids) const;
  void push_unknown(std::string_view bytes, std::vector<std::uint32_t>& symbols) const;

  bool byte_level_ = false, fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false;
  bool cut_at_space_ = false;  // no token has U+2581 after another character
  std::uint32_t unk_ = kNone;
  std::uint32_t vocabulary_size_ = 0;
  std::array<std::uint32_t, 256> byte_symbol_{}, last_byte_symbol_{};
  std::array<std::uint32_t, 256> fallback_symbol_{};
  // Characters as symbols; ids from vocabulary_size_ up are characters that are no
  // token themselves but part of one.
  std::unordered_map<char32_t, std::uint32_t> characters_, last_characters_;
  std::vector<std::string> extra_characters_;
  ByteTrie words_;  // for ignore_merges
  ByteTrie user_defined_;
  std::vector<Merge> table_;
  std::uint64_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace weft::model
