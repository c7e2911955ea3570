#include "weft/comm/trace.h"

#include "weft/base/hash.h"
#include "weft/base/units.h"

namespace weft::comm {

std::string_view to_string(Algorithm algorithm) {
  constexpr std::string_view kNames[] = {"none",   "inline", "one-shot", "staged",
                                         "direct", "ring",   "tree"};
  const auto index = static_cast<std::size_t>(algorithm);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

std::string describe(const RingRecord& record) {
  const auto kind = static_cast<RecordKind>(record.kind);
  if (kind != RecordKind::kOpBegin && kind != RecordKind::kOpDone) {
    return fmt::format("kind {} {}", record.kind, to_hex(record.payload));
  }
  const auto op = record.as<OpRecord>();
  const bool known = op.kind <= CallKind::kAllToAll && op.op <= ReduceOp::kMax;
  if (!known) return fmt::format("kind {} damaged {}", record.kind, to_hex(record.payload));
  Call call;
  call.kind = op.kind;
  call.type = op.type;
  call.op = op.op;
  call.count = op.count;
  std::string line = fmt::format("{} group {} epoch {} operation {} rank {}/{} {}",
                                 kind == RecordKind::kOpBegin ? "begin" : "done ", op.group,
                                 op.epoch, op.operation, op.rank, op.ranks, describe(call));
  if (kind == RecordKind::kOpDone) {
    line += fmt::format(", {}, {} {}",
                        human_duration(static_cast<double>(op.end_ns - op.begin_ns) * 1e-9),
                        to_string(op.algorithm), op.ok != 0 ? "ok" : "FAILED");
  }
  return line;
}

}  // namespace weft::comm
