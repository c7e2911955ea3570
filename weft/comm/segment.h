// Segment: the shared memory of one epoch of a group whose members run on one
// machine: what each rank calls, how far it is, and staging areas that the ranks
// read from each other.
//
// Waiting: a few hundred looks when every rank has a core, then yields, then a futex
// that any publishing rank rings; every sleep ends after 2 ms to look for dead
// members, the verdict and the deadline. Ringing costs a system call only when
// somebody sleeps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/deadline.h"
#include "weft/base/result.h"
#include "weft/comm/call.h"

namespace weft::comm {

inline constexpr std::size_t kInlineBytes = 96;         // of a call's own cache lines
inline constexpr std::size_t kOneShotBytes = 32 << 10;  // staged whole by each rank
inline constexpr std::size_t kStageBytes = 128 << 10;   // of one block
inline constexpr std::uint64_t kStages = 4;             // blocks a rank may be ahead

// A rank's announcement of an operation; two, used in turns.
struct alignas(128) CallSlot {
  std::atomic<std::uint64_t> sequence;  // of the operation, from 1
  Call call;
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(CallSlot) == 128);

struct alignas(128) RankArea {
  CallSlot slots[2];
  alignas(128) std::atomic<std::uint64_t> staged;  // blocks staged since the epoch began
  alignas(128) std::atomic<std::uint64_t> ready;   // blocks reduced, or taken
  // Rank waited for, plus 1, while asleep; 0 otherwise.
  alignas(128) std::atomic<std::uint32_t> waits_for;
};

class Segment {
 public:
  struct Member {
    std::int64_t pid = 0;  // of this process when it is a thread's
    std::uint64_t started = 0;
  };

  // Makes the segment (one rank) or joins it (the others, until `deadline`). The name
  // is that of a shared-memory file, which `unlink` removes once all have joined.
  static Result<std::unique_ptr<Segment>> create(std::string_view name, std::uint64_t group,
                                                 std::uint32_t epoch, std::uint32_t ranks);
  static Result<std::unique_ptr<Segment>> join(std::string_view name, std::uint64_t group,
                                               std::uint32_t epoch, std::uint32_t ranks,
                                               Deadline deadline);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Takes rank's place and waits until all others took theirs.
  Status enter(std::uint32_t rank, Deadline deadline);
  static void unlink(std::string_view name);

  std::uint32_t ranks() const { return ranks_; }
  RankArea& area(std::uint32_t rank) const { return areas_[rank]; }
  // Two areas of kOneShotBytes, used in turns, and kStages blocks of kStageBytes.
  std::byte* one_shot(std::uint32_t rank, std::uint64_t operation) const;
  std::byte* stage(std::uint32_t rank, std::uint64_t block) const;

  // Waits until `word`, which rank `late` publishes, is at least `value`. A verdict of
  // this epoch, the death of `late` (kUnavailable) or the deadline
  // (kDeadlineExceeded) end it; the first who gives up sets the verdict. A member that
  // died having published what we need harms nobody.
  Status wait(const std::atomic<std::uint64_t>& word, std::uint64_t value, std::uint32_t late,
              std::uint64_t operation, Deadline deadline) {
    if (word.load(std::memory_order_acquire) >= value) [[likely]]
      return {};
    return wait_slowly(word, value, late, operation, deadline);
  }
  // Publishes and wakes who sleeps.
  void publish(std::atomic<std::uint64_t>& word, std::uint64_t value);

  // Ends the epoch; gives the verdict that counts, the first one's.
  Verdict abort(const Verdict& verdict);
  bool aborted() const;
  Error verdict_error() const;

 private:
  struct Head;
  Segment() = default;
  static Result<std::unique_ptr<Segment>> map(int fd, std::uint32_t ranks);
  Status wait_slowly(const std::atomic<std::uint64_t>& word, std::uint64_t value,
                     std::uint32_t late, std::uint64_t operation, Deadline deadline);
  bool dead(std::uint32_t rank) const;
  // Whom to blame when `late` did not come: the rank that others wait for and that waits
  // for nobody, or in a cycle the one that has come the shortest way.
  std::uint32_t culprit(std::uint32_t late) const;

  Head* head_ = nullptr;
  RankArea* areas_ = nullptr;
  std::byte* staging_ = nullptr;
  std::size_t size_ = 0;
  std::uint32_t ranks_ = 0;
  std::uint32_t rank_ = 0;
  int spins_ = 0;
  std::vector<int> pidfds_;  // -1: this process
};

}  // namespace weft::comm
