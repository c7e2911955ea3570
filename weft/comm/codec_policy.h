// Which codec each link of a step uses: "fill to the bottleneck". A link is compressed no
// more than it must be to hide behind the slowest computation; one that cannot hide behind it
// even at the most that is allowed sets the pace, and the others are relaxed to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/decision.h"
#include "weft/base/result.h"
#include "weft/comm/codec.h"

namespace weft::comm {

struct LinkLoad {
  std::string name;
  double latency_s = 0;      // of one transfer
  double bytes_per_s = 0;    // above 0
  std::uint64_t values = 0;  // f32 of one transfer
};
struct CodecView {
  std::vector<LinkLoad> links = {};
  double compute_s = 0;     // the longest computation that transfers may hide behind
  double most_ratio = 100;  // 1 / the least fraction that Top-K may keep
  bool int8 = true;         // whether blocks of int8 may be used before Top-K
};
struct LinkCodec {
  CodecSpec spec;
  double transfer_s = 0;  // predicted
};

// Seconds of one transfer with `spec`, from frame_bound().
double transfer_seconds(const LinkLoad& link, const CodecSpec& spec);

// One codec for each link, in order; predicted_cost is the pace in seconds.
// kInvalidArgument names a link without a rate.
Result<Decision<std::vector<LinkCodec>>> decide(const CodecView& view);

}  // namespace weft::comm
