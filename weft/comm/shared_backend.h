// Collectives over a shared segment.
//
// Limit: a rank must read its input and write its output once, so an all-reduce of S
// bytes moves at least 2S bytes of each rank through memory when the vectors do not
// fit the caches (3S with ordinary stores, which read before they write). Everything
// else, staging included, is meant to stay in the cache: blocks are 128 KiB, outputs
// larger than the cache are written past it.
//
// Every operation begins with an announcement that all ranks read: it carries the
// call, so that a mismatch is an error everywhere before anything is written, and up
// to 96 bytes of data. Larger ones up to 32 KiB are staged whole and each rank
// combines all (one-shot); others go in blocks: stage the others' parts, combine
// the own part, copy the others' results (staged).
#pragma once

#include <memory>
#include <vector>

#include "weft/comm/backend.h"
#include "weft/comm/pieces.h"
#include "weft/comm/segment.h"

namespace weft::comm {

// One thread at a time.
class SharedBackend : public Backend {
 public:
  SharedBackend(std::unique_ptr<Segment> segment, std::uint32_t rank);
  Status run(const Work& work, Deadline deadline, Algorithm& used) override;
  std::uint64_t operation() const override { return sequence_; }
  void abort(const Verdict& verdict) override { segment_->abort(verdict); }

 private:
  Status announce(const Work& work, const std::byte* payload, std::size_t bytes, Deadline deadline);
  Status agree_on_pieces(const Work& work, Deadline deadline);
  Status reduce_small(const Work& work, Deadline deadline);
  Status reduce_staged(const Work& work, Deadline deadline);
  Status gather(const Work& work, Deadline deadline);
  Status broadcast(const Work& work, Deadline deadline);
  Status exchange(const Work& work, Deadline deadline);

  Status wait_staged(std::uint32_t rank, std::uint64_t block, Deadline deadline);
  Status wait_ready(std::uint32_t rank, std::uint64_t block, Deadline deadline);
  // Before staging `block`: everybody is done with the block whose place it takes.
  Status wait_free(std::uint64_t block, Deadline deadline);

  std::unique_ptr<Segment> segment_;
  std::uint32_t rank_;
  std::uint32_t ranks_;
  std::uint64_t sequence_ = 0;
  std::uint64_t blocks_ = 0;  // staged by all ranks so far
  Pieces pieces_;
  std::vector<std::byte> scratch_;
};

}  // namespace weft::comm
