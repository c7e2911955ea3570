// The bytes before the slots of a ring file (docs/formats/ring.md). Private to
// the ring's writer and reader.
#pragma once

#include <atomic>
#include <cstdint>

#include "weft/base/ring.h"

namespace weft {

inline constexpr char kRingMagic[8] = {'W', 'E', 'F', 'T', 'R', 'I', 'N', 'G'};
inline constexpr std::uint32_t kRingVersion = 1;
inline constexpr std::uint32_t kRingMaxLanes = 256;

struct RingFileHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t slot_bytes;
  std::uint32_t lanes;
  std::atomic<std::uint32_t> claimed;
  std::uint64_t slots_per_lane;
  std::int64_t pid;
  std::uint64_t incarnation;
  std::int64_t unix_offset_ns;
  std::uint32_t rank;
  std::uint32_t zero;
  char writer[64];
};

struct RingLaneHeader {
  char name[32];
};

// Lane names begin here, slots at the next multiple of 4096.
inline constexpr std::size_t kRingLaneNamesAt = 256;
static_assert(sizeof(RingFileHeader) <= kRingLaneNamesAt);

inline std::size_t ring_slots_at(std::uint32_t lanes) {
  return (kRingLaneNamesAt + lanes * sizeof(RingLaneHeader) + 4095) / 4096 * 4096;
}

}  // namespace weft
