// One collective call as its ranks describe it to each other, and how they find the
// one that called something else.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "weft/base/dtype.h"
#include "weft/base/result.h"
#include "weft/comm/reduce.h"

namespace weft::comm {

enum class CallKind : std::uint8_t {
  kBarrier,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kAllToAll,
};
std::string_view to_string(CallKind kind);

// What must be equal on all ranks of a call. `count` is in elements, of the whole
// vector of an all-reduce, of one rank's part of a gather; `layout` digests the parts
// of the calls whose parts differ. Compared byte by byte.
struct Call {
  CallKind kind = CallKind::kBarrier;
  DType type = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  std::uint8_t zero = 0;
  std::uint32_t root = 0;
  std::uint64_t count = 0;
  std::uint64_t layout = 0;
  bool operator==(const Call&) const = default;
};
static_assert(sizeof(Call) == 24);

std::string describe(const Call& call);  // "all-reduce sum of 1024 F32"

// kInvalidArgument naming the call of most ranks, the odd rank and its call; the same
// sentence on every rank. The lowest rank's call wins a tie. Call it only when they differ.
Error mismatch(std::span<const Call> calls, std::uint64_t operation);

// Why an epoch of a group ended. Agreed: all survivors hold the same one.
struct Verdict {
  enum class Cause : std::uint8_t { kNone, kDead, kLate, kFenced };
  Cause cause = Cause::kNone;
  std::uint32_t rank = 0;       // who is to blame
  std::uint32_t operation = 0;  // the first that not every rank may have finished
  bool operator==(const Verdict&) const = default;
};
std::uint64_t pack(const Verdict& verdict);  // never 0
Verdict unpack_verdict(std::uint64_t word);
Error error_of(const Verdict& verdict, std::uint64_t group, std::uint32_t epoch);

}  // namespace weft::comm
