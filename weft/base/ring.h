// Record rings: fixed-size records in a shared-memory file that outlives its
// writer, so that the last thing a killed process did can still be read.
//
// A ring has lanes; each has one writer (a thread) and any number of readers, in
// this or another process. A writer overwrites the oldest record without waiting;
// a reader notices what it missed. `put` allocates nothing, takes no lock and
// makes no system call. The format is in docs/formats/ring.md; the rules are
// Mycroft's (arXiv 2509.03018, section on the data path), with per-thread lanes.
//
// Limit of `put`: two cache lines written once each, in order. Lines that left the
// cache cost one read for ownership, which the hardware's stream prefetch hides;
// so the limit is 128 bytes at the core's copy rate, about 10 ns.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "weft/base/result.h"

namespace weft {

inline constexpr std::size_t kRingPayloadBytes = 104;

// One record as a reader gets it. `kind` says what the payload is (see
// weft/comm/trace.h); `ns` is the writer's clock (CLOCK_MONOTONIC).
struct RingRecord {
  std::uint64_t index = 0;  // counts from 0 within its lane
  std::uint64_t ns = 0;
  std::uint32_t kind = 0;
  std::array<std::byte, kRingPayloadBytes> payload{};

  template <class T>
  T as() const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kRingPayloadBytes);
    T value;
    std::memcpy(&value, payload.data(), sizeof(T));
    return value;
  }
};

// A slot as it lies in the file. `stamp` is 2i+1 while record i is being written
// and 2i+2 when it is whole; 0 before the first.
struct alignas(128) RingSlot {
  std::atomic<std::uint64_t> stamp;
  std::atomic<std::uint64_t> ns;
  std::atomic<std::uint64_t> kind;
  std::array<std::atomic<std::uint64_t>, kRingPayloadBytes / 8> words;
};
static_assert(sizeof(RingSlot) == 128);

struct RingLaneHeader;
struct RingFileHeader;

// The writing end of one lane. One thread at a time; stays valid while its Ring lives.
class RingLane {
 public:
  template <class T>
  void put(std::uint32_t kind, std::uint64_t ns, const T& payload) noexcept {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kRingPayloadBytes);
    constexpr std::size_t words = (sizeof(T) + 7) / 8;
    std::array<std::uint64_t, words> copy{};
    std::memcpy(copy.data(), &payload, sizeof(T));
    RingSlot& slot = slots_[next_ & mask_];
    slot.stamp.store(2 * next_ + 1, std::memory_order_relaxed);
    // The odd stamp is visible before any word of the record.
    std::atomic_thread_fence(std::memory_order_release);
    slot.ns.store(ns, std::memory_order_relaxed);
    slot.kind.store(kind, std::memory_order_relaxed);
    for (std::size_t i = 0; i < words; ++i) {
      slot.words[i].store(copy[i], std::memory_order_relaxed);
    }
    for (std::size_t i = words; i < slot.words.size(); ++i) {
      slot.words[i].store(0, std::memory_order_relaxed);
    }
    slot.stamp.store(2 * next_ + 2, std::memory_order_release);
    ++next_;
  }
  std::uint64_t written() const { return next_; }

 private:
  friend class Ring;
  RingLane(RingSlot* slots, std::uint64_t mask) : slots_(slots), mask_(mask) {}
  RingSlot* slots_;
  std::uint64_t mask_;
  std::uint64_t next_ = 0;
};

struct RingOptions {
  std::string writer = {};                   // who writes, for people: "rank 3"; at most 63 bytes
  std::uint32_t rank = 0;                    // of the writer, for readers that join rings
  std::uint64_t incarnation = 0;             // distinguishes a restarted writer
  std::uint32_t lanes = 4;                   // threads that may write
  std::size_t bytes = std::size_t{8} << 20;  // of all slots; rounded down to a power of two a lane
};

// The file and its lanes. The memory is touched when it is made, so that `put`
// meets no page fault. Removing the file is the caller's business.
class Ring {
 public:
  // Replaces what is at `path`. kInvalidArgument for no lanes or less than 8 slots
  // a lane; kResourceExhausted when the shared memory is full.
  static Result<Ring> create(const std::filesystem::path& path, const RingOptions& options);
  Ring(Ring&&) noexcept;
  Ring& operator=(Ring&&) noexcept;
  ~Ring();

  // The next unclaimed lane, named for people ("progress"); kResourceExhausted when
  // all are taken. From any thread.
  Result<RingLane*> claim_lane(std::string_view name);
  std::uint64_t slots_per_lane() const;

 private:
  struct State;
  explicit Ring(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The ring of this job and rank: /dev/shm/weft-<job>/rank-<rank>.ring. The job's
// name may hold letters, digits, '-', '_' and '.'.
Result<std::filesystem::path> ring_path(std::string_view job, std::uint32_t rank);

// What one look at a lane gave.
struct RingRead {
  std::vector<RingRecord> records;  // in order
  std::uint64_t next = 0;           // index to ask for next time
  std::uint64_t lost = 0;           // overwritten before they were read
  bool torn = false;                // the writer stopped (or is) inside a record
};

// Reads a ring while it is written or after its writer died. Read-only; not for
// concurrent use of one object.
class RingReader {
 public:
  // kCorrupt, naming the field, when the file is no ring, is truncated or has
  // another version.
  static Result<RingReader> open(const std::filesystem::path& path);
  RingReader(RingReader&&) noexcept;
  RingReader& operator=(RingReader&&) noexcept;
  ~RingReader();

  std::string writer() const;
  std::uint32_t rank() const;
  std::uint64_t incarnation() const;
  std::int64_t pid() const;
  std::uint32_t lanes() const;  // claimed ones
  std::string lane_name(std::uint32_t lane) const;
  std::uint64_t slots_per_lane() const;
  // Add to a record's `ns` to get Unix time in ns, as of the ring's creation.
  std::int64_t unix_offset_ns() const;

  // Records of `lane` from `from` on, or from the oldest that is left.
  Result<RingRead> read(std::uint32_t lane, std::uint64_t from = 0) const;

 private:
  struct State;
  explicit RingReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace weft
