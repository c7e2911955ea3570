#include "weft/comm/codec_policy.h"

#include <algorithm>
#include <cmath>

namespace weft::comm {
namespace {

CodecSpec top_k(double fraction) { return {.kind = CodecKind::kTopK, .fraction = fraction}; }

// The largest fraction in [least, 1] whose transfer takes at most `pace`; `least` where none.
double fraction_within(const LinkLoad& link, double pace, double least) {
  double low = least, high = 1;
  for (int i = 0; i < 40; ++i) {
    const double middle = 0.5 * (low + high);
    (transfer_seconds(link, top_k(middle)) <= pace ? low : high) = middle;
  }
  return low;
}

// The weakest codec that keeps the pace, or the strongest allowed.
LinkCodec weakest(const CodecView& view, const LinkLoad& link, double pace) {
  std::vector<CodecSpec> ladder{{.kind = CodecKind::kNone}};
  if (view.int8) ladder.push_back({.kind = CodecKind::kInt8});
  for (const CodecSpec& spec : ladder) {
    const double seconds = transfer_seconds(link, spec);
    if (seconds <= pace) return {spec, seconds};
  }
  const CodecSpec spec = top_k(fraction_within(link, pace, 1 / view.most_ratio));
  return {spec, transfer_seconds(link, spec)};
}

}  // namespace

double transfer_seconds(const LinkLoad& link, const CodecSpec& spec) {
  return link.latency_s + static_cast<double>(frame_bound(spec, link.values)) / link.bytes_per_s;
}

Result<Decision<std::vector<LinkCodec>>> decide(const CodecView& view) {
  if (!(view.most_ratio >= 1)) {
    return fail(ErrorCode::kInvalidArgument, "most_ratio {}: 1 or more", view.most_ratio);
  }
  double pace = view.compute_s;
  const LinkLoad* slowest = nullptr;
  for (const LinkLoad& link : view.links) {
    if (!(link.bytes_per_s > 0) || !(link.latency_s >= 0)) {
      return fail(ErrorCode::kInvalidArgument, "link {}: latency {} s, {} bytes/s", link.name,
                  link.latency_s, link.bytes_per_s);
    }
    const double least = weakest(view, link, view.compute_s).transfer_s;
    if (least > pace) {
      pace = least;
      slowest = &link;
    }
  }
  Decision<std::vector<LinkCodec>> decision;
  decision.predicted_cost = pace;
  decision.reason =
      slowest == nullptr
          ? fmt::format("every link hides behind {:.6g} s of computation", pace)
          : fmt::format("link {} takes {:.6g} s at the most compression allowed ({:.6g}x)",
                        slowest->name, pace, view.most_ratio);
  for (const LinkLoad& link : view.links) {
    decision.chosen.push_back(weakest(view, link, pace));
    const double dense = transfer_seconds(link, {.kind = CodecKind::kNone});
    if (dense > pace) {
      decision.rejected.push_back(
          {fmt::format("{}: none", link.name), "slower than the pace", dense});
    }
  }
  return decision;
}

}  // namespace weft::comm
