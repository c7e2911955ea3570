// Batcher: which rows run next, and where their keys and values lie.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "weft/nn/kv_pool.h"
#include "weft/nn/transformer.h"
#include "weft/serve/engine.h"
#include "weft/serve/prefix_cache.h"
#include "weft/serve/sequence.h"

namespace weft::serve {

// Iteration-level scheduling (Yu et al., "Orca", OSDI'22) with chunked prefill under
// a token budget (Agrawal et al., "Sarathi-Serve", OSDI'24) over pages (Kwon et al.,
// "PagedAttention", SOSP'23). One step:
//   1. one row for each running sequence that has one token to run, oldest first;
//   2. prompt rows of running sequences, oldest first, while the budget lasts;
//   3. waiting sequences start, in order, while there is budget, a place and enough
//      pages for all their tokens.
// A row without a page first takes one that only the prefix cache holds, then the
// pages of the youngest sequence that has no row in this step and is younger than
// its own; that one goes back to the front of the queue and is computed again later.
// So the oldest sequence always gets on.
// Not thread-safe; the engine's thread owns it.
class Batcher {
 public:
  Batcher(const model::ModelConfig& config, const EngineOptions& options, std::int64_t pages);
  ~Batcher();

  void enqueue(std::unique_ptr<Sequence> sequence) { waiting_.push_back(std::move(sequence)); }
  // Takes a sequence out and frees its pages; null if it is not here.
  std::unique_ptr<Sequence> remove(std::uint64_t id);
  std::unique_ptr<Sequence> remove_any();

  // Chooses the rows of the next step. After their forward pass, finish_step() moves
  // the computed positions on.
  void plan();
  void finish_step();
  std::span<const nn::TokenRow> rows() const { return rows_; }
  std::span<const std::span<const std::int32_t>> page_tables() const { return tables_; }
  // The sequences whose last row is in the batch: they get a token, in the order of
  // their logits.
  const std::vector<Sequence*>& sampling() const { return sampling_; }

  // Forgets all keys and values; with keep_kv only what others could share.
  void weights_changed(bool keep_kv);

  nn::KvPool& kv() { return kv_; }
  bool empty() const { return running_.empty() && waiting_.empty(); }
  // Adds running, waiting, pages and the totals counted here.
  void fill(EngineStats& stats) const;

 private:
  // Whether a running sequence is about to compute positions that `sequence` can take
  // from it in the next step.
  bool worth_waiting(const Sequence& sequence) const;
  // Gives a sequence that starts the pages of its known prefix. Nothing changes if the
  // rest has no room now, or if it is better to start in the next step.
  enum class Admission { kStarts, kLater, kNoRoom };
  Admission admit(Sequence& sequence);
  // Takes over a part of a page that a running sequence has computed.
  void copy_partial_page(Sequence& sequence);
  // Positions of page `sequence.pages.size()` that `other` shares with it.
  std::int64_t shared_in_next_page(const Sequence& sequence, const Sequence& other) const;
  // Adds up to `count` rows, as many as pages can be had for; the number placed.
  std::int64_t place(Sequence& sequence, std::int64_t count);
  bool take_page(Sequence& sequence);
  std::int32_t free_page();  // -1 if there is none, even from the cache
  bool preempt_younger_than(const Sequence& sequence);
  void preempt(std::size_t index);
  void release(Sequence& sequence);

  EngineOptions options_;
  nn::KvPool kv_;
  PrefixCache prefixes_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // oldest first
  std::vector<nn::TokenRow> rows_;
  std::vector<std::span<const std::int32_t>> tables_;
  std::vector<Sequence*> sampling_, in_batch_;
  std::int64_t preemptions_ = 0, computed_ = 0, shared_ = 0, prompt_tokens_ = 0;
};

}  // namespace weft::serve
