#include "weft/serve/prefix_cache.h"

#include <xxhash.h>

#include <algorithm>

#include "weft/nn/attention.h"

namespace weft::serve {

namespace {

PrefixCache::Key key_of(PrefixCache::Key parent, std::span<const model::TokenId> tokens) {
  const PrefixCache::Key key = XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), parent);
  return key == PrefixCache::kRoot ? 1 : key;
}

}  // namespace

const PrefixCache::Entry* PrefixCache::find(Key key, Key parent,
                                            std::span<const model::TokenId> tokens) const {
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.parent != parent ||
      !std::ranges::equal(found->second.tokens, tokens)) {
    return nullptr;
  }
  return &found->second;
}

PrefixCache::Match PrefixCache::match(std::span<const model::TokenId> tokens,
                                      std::int64_t max_pages) {
  Match match;
  Key parent = kRoot;
  for (std::int64_t i = 0; i < max_pages; ++i) {
    const auto page_tokens = tokens.subspan(static_cast<std::size_t>(i * nn::kAttentionBlock),
                                            static_cast<std::size_t>(nn::kAttentionBlock));
    const Key key = key_of(parent, page_tokens);
    const Entry* entry = find(key, parent, page_tokens);
    if (entry == nullptr) break;
    pool_->retain(entry->page);
    match.pages.push_back(entry->page);
    match.keys.push_back(key);
    parent = key;
  }
  // Deepest first, so that a page outlives those that are reached through it.
  for (std::size_t i = match.keys.size(); i-- > 0;) touch(entries_.at(match.keys[i]));
  return match;
}

PrefixCache::Key PrefixCache::insert(Key parent, std::span<const model::TokenId> tokens,
                                     std::int32_t page) {
  const Key key = key_of(parent, tokens);
  if (entries_.contains(key)) return key;
  pool_->retain(page);
  const auto use = uses_.insert(uses_.end(), key);
  entries_.emplace(key, Entry{parent, {tokens.begin(), tokens.end()}, page, use});
  return key;
}

bool PrefixCache::evict() {
  for (auto use = uses_.begin(); use != uses_.end(); ++use) {
    const auto entry = entries_.find(*use);
    if (pool_->references(entry->second.page) != 1) continue;
    pool_->release(entry->second.page);
    entries_.erase(entry);
    uses_.erase(use);
    return true;
  }
  return false;
}

std::int64_t PrefixCache::evictable() const {
  return std::ranges::count_if(
      entries_, [&](const auto& entry) { return pool_->references(entry.second.page) == 1; });
}

void PrefixCache::clear() {
  for (const auto& [key, entry] : entries_) pool_->release(entry.page);
  entries_.clear();
  uses_.clear();
}

}  // namespace weft::serve
