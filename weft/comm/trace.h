// What the communicator writes into its record ring (kinds and payloads).
#pragma once

#include <cstdint>
#include <string>

#include "weft/base/ring.h"
#include "weft/comm/call.h"

namespace weft::comm {

enum class RecordKind : std::uint32_t {
  kOpBegin = 1,  // OpRecord with end_ns 0: what a dead rank was in
  kOpDone = 2,   // OpRecord
};

enum class Algorithm : std::uint8_t { kNone, kInline, kOneShot, kStaged, kDirect, kRing, kTree };
std::string_view to_string(Algorithm algorithm);

// One collective at one rank. `ok` is 0 when it ended in an error.
struct OpRecord {
  std::uint64_t group = 0;
  std::uint64_t operation = 0;
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  std::uint64_t bytes = 0;  // of the call's vector
  std::uint64_t count = 0;
  std::uint32_t epoch = 0;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;
  CallKind kind = CallKind::kBarrier;
  DType type = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  Algorithm algorithm = Algorithm::kNone;
  std::uint32_t ok = 0;
};

// One line for a person; unknown kinds as hexadecimal.
std::string describe(const RingRecord& record);

}  // namespace weft::comm
