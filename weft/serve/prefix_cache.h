// PrefixCache: full pages of keys and values by the tokens that made them.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "weft/model/tokenizer.h"
#include "weft/nn/kv_pool.h"

namespace weft::serve {

// A page is known by its own tokens and, through its parent's key, by all tokens
// before it. A prefix that was run once (by a sequence that still runs or one that
// ended) is not run again: by the numerics contract its keys and values have the
// bits that the new sequence would compute. The cache holds one reference to each
// of its pages; pages that nobody else holds are given back in order of last use.
// Not thread-safe; the engine owns it. `pool` must outlive it.
class PrefixCache {
 public:
  explicit PrefixCache(nn::KvPool& pool) : pool_(&pool) {}
  ~PrefixCache() { clear(); }
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  using Key = std::uint64_t;
  static constexpr Key kRoot = 0;

  // The pages of the longest known prefix of `tokens`, at most `max_pages`; each
  // gets a reference for the caller.
  struct Match {
    std::vector<std::int32_t> pages;
    std::vector<Key> keys;  // of those pages
  };
  Match match(std::span<const model::TokenId> tokens, std::int64_t max_pages);

  // Makes `page` known as the one that follows `parent` with these tokens
  // (kAttentionBlock of them); returns its key. If another page is known already
  // for them, that one stays.
  Key insert(Key parent, std::span<const model::TokenId> tokens, std::int32_t page);

  // Gives back the page that was used longest ago and that only the cache holds;
  // false if there is none.
  bool evict();
  std::int64_t evictable() const;
  std::int64_t pages() const { return static_cast<std::int64_t>(entries_.size()); }
  void clear();

 private:
  struct Entry {
    Key parent;
    std::vector<model::TokenId> tokens;
    std::int32_t page;
    std::list<Key>::iterator use;  // position in uses_
  };
  const Entry* find(Key key, Key parent, std::span<const model::TokenId> tokens) const;
  void touch(Entry& entry) { uses_.splice(uses_.end(), uses_, entry.use); }

  nn::KvPool* pool_;
  std::unordered_map<Key, Entry> entries_;
  std::list<Key> uses_;  // least recently used first
};

}  // namespace weft::serve
