#include "weft/serve/batch.h"

#include <algorithm>
#include <iterator>

namespace weft::serve {

namespace {

// Copying a page costs about as much as running this many rows (1.5 MB against
// 0.27 GFLOP a row for a model of 135 million parameters).
constexpr std::int64_t kWorthCopying = 2;
// Positions that are worth starting one step later.
constexpr std::int64_t kWorthWaiting = 4;

std::int64_t pages_for(std::int64_t positions) {
  return (positions + nn::kAttentionBlock - 1) / nn::kAttentionBlock;
}

}  // namespace

Batcher::Batcher(const model::ModelConfig& config, const EngineOptions& options, std::int64_t pages)
    : options_(options), kv_(config, pages), prefixes_(kv_) {}

Batcher::~Batcher() {
  while (remove_any()) {
  }
}

void Batcher::release(Sequence& sequence) {
  for (const std::int32_t page : sequence.pages) kv_.release(page);
  sequence.pages.clear();
  sequence.page_keys.clear();
  sequence.computed = 0;
  sequence.kept_kv = false;
}

std::unique_ptr<Sequence> Batcher::remove(std::uint64_t id) {
  const auto matches = [id](const auto& sequence) { return sequence->id == id; };
  std::unique_ptr<Sequence> found;
  if (const auto at = std::ranges::find_if(running_, matches); at != running_.end()) {
    found = std::move(*at);
    running_.erase(at);
  } else if (const auto in = std::ranges::find_if(waiting_, matches); in != waiting_.end()) {
    found = std::move(*in);
    waiting_.erase(in);
  }
  if (found) release(*found);
  return found;
}

std::unique_ptr<Sequence> Batcher::remove_any() {
  if (!running_.empty()) return remove(running_.back()->id);
  if (!waiting_.empty()) return remove(waiting_.back()->id);
  return nullptr;
}

void Batcher::preempt(std::size_t index) {
  std::unique_ptr<Sequence> sequence = std::move(running_[index]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  release(*sequence);
  ++preemptions_;
  const auto at = std::ranges::lower_bound(waiting_, sequence->id, {},
                                           [](const auto& waiting) { return waiting->id; });
  waiting_.insert(at, std::move(sequence));
}

bool Batcher::preempt_younger_than(const Sequence& sequence) {
  std::size_t victim = running_.size();
  for (std::size_t i = 0; i < running_.size(); ++i) {
    const Sequence& other = *running_[i];
    if (other.placed > 0 || other.id <= sequence.id) continue;
    if (victim == running_.size() || other.id > running_[victim]->id) victim = i;
  }
  if (victim == running_.size()) return false;
  preempt(victim);
  return true;
}

std::int32_t Batcher::free_page() {
  if (kv_.free_pages() == 0 && !prefixes_.evict()) return -1;
  const auto page = kv_.allocate();
  WEFT_CHECK(page.has_value());
  return *page;
}

bool Batcher::take_page(Sequence& sequence) {
  std::int32_t page = free_page();
  while (page < 0 && preempt_younger_than(sequence)) page = free_page();
  if (page < 0) return false;
  sequence.pages.push_back(page);
  return true;
}

std::int64_t Batcher::shared_in_next_page(const Sequence& sequence, const Sequence& other) const {
  const std::size_t page = sequence.pages.size();
  if (&other == &sequence || other.kept_kv || other.pages.size() <= page) return 0;
  // Holding the same page before is holding the same tokens before.
  if (page > 0 && other.pages[page - 1] != sequence.pages[page - 1]) return 0;
  const auto begin = static_cast<std::int64_t>(page) * nn::kAttentionBlock;
  // The last token of `sequence` has to run for its logits.
  const std::int64_t end =
      std::min({begin + nn::kAttentionBlock, sequence.size() - 1, other.size()});
  std::int64_t at = begin;
  while (at < end && sequence.tokens[static_cast<std::size_t>(at)] ==
                         other.tokens[static_cast<std::size_t>(at)]) {
    ++at;
  }
  return at - begin;
}

bool Batcher::worth_waiting(const Sequence& sequence) const {
  for (const auto& other : running_) {
    const std::int64_t shared = shared_in_next_page(sequence, *other);
    if (shared < kWorthWaiting) continue;
    const auto begin = static_cast<std::int64_t>(sequence.pages.size()) * nn::kAttentionBlock;
    // Only for rows of this very step: then the wait is one step long.
    if (other->computed < begin + shared && other->computed + other->placed >= begin + shared) {
      return true;
    }
  }
  return false;
}

void Batcher::copy_partial_page(Sequence& sequence) {
  const auto begin = static_cast<std::int64_t>(sequence.pages.size()) * nn::kAttentionBlock;
  std::int64_t best = 0;
  std::int32_t from = -1;
  for (const auto& other : running_) {
    const std::int64_t shared =
        std::min(shared_in_next_page(sequence, *other), other->computed - begin);
    if (shared > best) {
      best = shared;
      from = other->pages[sequence.pages.size()];
    }
  }
  if (best < kWorthCopying) return;
  const std::int32_t page = free_page();
  if (page < 0) return;
  kv_.copy(from, page);
  sequence.pages.push_back(page);
  sequence.computed += best;
}

Batcher::Admission Batcher::admit(Sequence& sequence) {
  if (options_.share_prefixes) {
    PrefixCache::Match match =
        prefixes_.match(sequence.tokens, (sequence.size() - 1) / nn::kAttentionBlock);
    sequence.pages = std::move(match.pages);
    sequence.page_keys = std::move(match.keys);
    sequence.computed = static_cast<std::int64_t>(sequence.pages.size()) * nn::kAttentionBlock;
  }
  // A few pages more than it needs now, or the next tokens of those that run would
  // push it out again at once.
  const std::int64_t reserve = (static_cast<std::int64_t>(running_.size()) + 3) / 4;
  const std::int64_t wanted =
      pages_for(sequence.size()) - static_cast<std::int64_t>(sequence.pages.size()) + reserve;
  const bool fits =
      kv_.free_pages() >= wanted || kv_.free_pages() + prefixes_.evictable() >= wanted;
  if (!fits || (options_.share_prefixes && worth_waiting(sequence))) {
    release(sequence);
    return fits ? Admission::kLater : Admission::kNoRoom;
  }
  if (options_.share_prefixes) copy_partial_page(sequence);
  shared_ += sequence.computed;
  if (!sequence.counted) {
    sequence.counted = true;
    prompt_tokens_ += sequence.prompt_tokens;
  }
  return Admission::kStarts;
}

std::int64_t Batcher::place(Sequence& sequence, std::int64_t count) {
  const std::int64_t end = sequence.computed + count;
  while (static_cast<std::int64_t>(sequence.pages.size()) < pages_for(end)) {
    if (!take_page(sequence)) break;
  }
  const std::int64_t covered =
      std::min(end, static_cast<std::int64_t>(sequence.pages.size()) * nn::kAttentionBlock);
  if (covered <= sequence.computed) return 0;
  const auto table = static_cast<std::int32_t>(tables_.size());
  tables_.emplace_back(sequence.pages);
  for (std::int64_t at = sequence.computed; at < covered; ++at) {
    rows_.push_back({sequence.tokens[static_cast<std::size_t>(at)], table,
                     static_cast<std::int32_t>(at), at + 1 == sequence.size()});
  }
  sequence.placed = covered - sequence.computed;
  in_batch_.push_back(&sequence);
  if (covered == sequence.size()) sampling_.push_back(&sequence);
  // Full pages are known from here on: a sequence that finds one runs in this step
  // or later, and a layer's keys and values are stored before any row attends.
  while (options_.share_prefixes && !sequence.kept_kv) {
    const std::size_t page = sequence.page_keys.size();
    if (static_cast<std::int64_t>(page + 1) * nn::kAttentionBlock > covered) break;
    sequence.page_keys.push_back(
        prefixes_.insert(page == 0 ? PrefixCache::kRoot : sequence.page_keys.back(),
                         std::span(sequence.tokens)
                             .subspan(page * static_cast<std::size_t>(nn::kAttentionBlock),
                                      static_cast<std::size_t>(nn::kAttentionBlock)),
                         sequence.pages[page]));
  }
  return sequence.placed;
}

void Batcher::plan() {
  rows_.clear();
  tables_.clear();
  sampling_.clear();
  in_batch_.clear();
  std::int64_t budget = options_.max_batch_tokens;
  // Indices, since a placement may preempt the sequences behind.
  for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
    if (running_[i]->remaining() != 1) continue;
    budget -= place(*running_[i], 1);
  }
  for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
    if (running_[i]->placed > 0) continue;
    budget -= place(*running_[i], std::min(budget, running_[i]->remaining()));
  }
  std::size_t next = 0;
  while (next < waiting_.size() && budget > 0 &&
         static_cast<std::int64_t>(running_.size()) < options_.max_sequences) {
    const Admission admission = admit(*waiting_[next]);
    if (admission == Admission::kNoRoom) break;
    if (admission == Admission::kLater) {
      ++next;
      continue;
    }
    running_.push_back(std::move(waiting_[next]));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(next));
    Sequence& sequence = *running_.back();
    budget -= place(sequence, std::min(budget, sequence.remaining()));
  }
  std::ranges::sort(running_, {}, [](const auto& sequence) { return sequence->id; });
  computed_ += static_cast<std::int64_t>(rows_.size());
}

void Batcher::finish_step() {
  for (Sequence* sequence : in_batch_) {
    sequence->computed += sequence->placed;
    sequence->placed = 0;
  }
  in_batch_.clear();
}

void Batcher::weights_changed(bool keep_kv) {
  prefixes_.clear();
  if (!keep_kv) {
    while (!running_.empty()) preempt(running_.size() - 1);
    return;
  }
  for (auto& sequence : running_) {
    sequence->kept_kv = true;
    sequence->page_keys.clear();
  }
}

void Batcher::fill(EngineStats& stats) const {
  stats.running = static_cast<std::int64_t>(running_.size());
  stats.waiting = static_cast<std::int64_t>(waiting_.size());
  stats.kv_pages = kv_.pages();
  stats.kv_pages_cached = prefixes_.evictable();
  stats.kv_pages_used = kv_.pages() - kv_.free_pages() - stats.kv_pages_cached;
  stats.prompt_tokens_total = prompt_tokens_;
  stats.preemptions_total = preemptions_;
  stats.computed_tokens_total = computed_;
  stats.shared_tokens_total = shared_;
}

}  // namespace weft::serve
