#include "weft/comm/call.h"

#include <algorithm>

namespace weft::comm {

std::string_view to_string(CallKind kind) {
  constexpr std::string_view kNames[] = {"barrier",   "all-reduce", "reduce-scatter", "all-gather",
                                         "broadcast", "reduce",     "all-to-all"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string describe(const Call& call) {
  std::string text(to_string(call.kind));
  if (call.kind == CallKind::kBarrier) return text;
  const bool reduces = call.kind == CallKind::kAllReduce || call.kind == CallKind::kReduce ||
                       call.kind == CallKind::kReduceScatter;
  if (reduces) text += fmt::format(" {}", to_string(call.op));
  text += fmt::format(" of {} {}", call.count, to_string(call.type));
  if (call.kind == CallKind::kBroadcast || call.kind == CallKind::kReduce) {
    text += fmt::format(" with root {}", call.root);
  }
  if (call.layout != 0) text += fmt::format(" in parts {:08x}", call.layout & 0xffffffff);
  return text;
}

Error mismatch(std::span<const Call> calls, std::uint64_t operation) {
  std::size_t most = 0, votes = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto same = static_cast<std::size_t>(std::ranges::count(calls, calls[i]));
    if (same > votes) {
      votes = same;
      most = i;
    }
  }
  std::size_t odd = 0;
  while (odd < calls.size() && calls[odd] == calls[most]) ++odd;
  WEFT_CHECK(odd < calls.size());
  return {ErrorCode::kInvalidArgument,
          fmt::format("operation {}: rank {} called {} where {} of {} ranks called {}; make the "
                      "calls of all ranks equal",
                      operation, odd, describe(calls[odd]), votes, calls.size(),
                      describe(calls[most]))};
}

std::uint64_t pack(const Verdict& verdict) {
  return static_cast<std::uint64_t>(verdict.cause) << 56 |
         static_cast<std::uint64_t>(verdict.rank & 0xffffff) << 32 | verdict.operation;
}

Verdict unpack_verdict(std::uint64_t word) {
  Verdict verdict;
  verdict.cause = static_cast<Verdict::Cause>(std::min<std::uint64_t>(word >> 56, 3));
  verdict.rank = static_cast<std::uint32_t>(word >> 32) & 0xffffff;
  verdict.operation = static_cast<std::uint32_t>(word);
  return verdict;
}

Error error_of(const Verdict& verdict, std::uint64_t group, std::uint32_t epoch) {
  constexpr std::string_view kCauses[] = {"is not known to have failed", "is dead",
                                          "did not come before the deadline", "was fenced out"};
  const bool late = verdict.cause == Verdict::Cause::kLate;
  return {
      late ? ErrorCode::kDeadlineExceeded : ErrorCode::kUnavailable,
      fmt::format("group {} epoch {} ended at operation {}: rank {} {}; edit the group to go on",
                  group, epoch, verdict.operation, verdict.rank,
                  kCauses[static_cast<std::size_t>(verdict.cause)])};
}

}  // namespace weft::comm
