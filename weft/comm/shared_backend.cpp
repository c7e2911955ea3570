#include "weft/comm/shared_backend.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weft::comm {
namespace {

// Elements of a tile: what is combined at once stays in the first-level cache.
constexpr std::size_t kTileBytes = 8 << 10;
// Outputs from here on are written past the caches: they would displace the staging
// areas and would not be there any more when the caller reads them.
constexpr std::size_t kStreamBytes = 4 << 20;
// More ranks than this go the staged way for every size.
constexpr std::uint32_t kSmallRanks = 64;
// Tiles of scratch: for the tree over ranks, the tree over this rank's logical ranks,
// and the values of its pieces (at most 2 log2(64)).
constexpr std::size_t kInnerScratch = 20;
constexpr std::size_t kPieceScratch = 30;
constexpr std::size_t kScratchTiles = kPieceScratch + 14;

void copy(std::byte* to, const std::byte* from, std::size_t bytes, bool stream) {
  if (bytes == 0 || to == from) return;
  if (stream) {
    stream_copy(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

SharedBackend::SharedBackend(std::unique_ptr<Segment> segment, std::uint32_t rank)
    : segment_(std::move(segment)), rank_(rank), ranks_(segment_->ranks()) {
  scratch_.resize(kScratchTiles * kTileBytes);
}

Status SharedBackend::announce(const Work& work, const std::byte* payload, std::size_t bytes,
                               Deadline deadline) {
  if (segment_->aborted()) return std::unexpected(segment_->verdict_error());
  const std::uint64_t sequence = ++sequence_;
  CallSlot& mine = segment_->area(rank_).slots[sequence % 2];
  mine.call = work.call;
  if (bytes > 0) std::memcpy(mine.payload, payload, bytes);
  segment_->publish(mine.sequence, sequence);
  bool equal = true;
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    if (r == rank_) continue;
    const CallSlot& slot = segment_->area(r).slots[sequence % 2];
    WEFT_TRY(segment_->wait(slot.sequence, sequence, r, sequence, deadline));
    equal = equal && slot.call == work.call;
  }
  if (equal) return {};
  std::vector<Call> calls;
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    calls.push_back(segment_->area(r).slots[sequence % 2].call);
  }
  return std::unexpected(mismatch(calls, sequence));
}

Status SharedBackend::wait_staged(std::uint32_t rank, std::uint64_t block, Deadline deadline) {
  return segment_->wait(segment_->area(rank).staged, block + 1, rank, sequence_, deadline);
}

Status SharedBackend::wait_ready(std::uint32_t rank, std::uint64_t block, Deadline deadline) {
  return segment_->wait(segment_->area(rank).ready, block + 1, rank, sequence_, deadline);
}

Status SharedBackend::wait_free(std::uint64_t block, Deadline deadline) {
  if (block < kStages) return {};
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    if (r != rank_) WEFT_TRY(wait_ready(r, block - kStages, deadline));
  }
  return {};
}

Status SharedBackend::agree_on_pieces(const Work& work, Deadline deadline) {
  if (work.inputs.empty()) {
    pieces_ = Pieces::one_each(ranks_);
    return {};
  }
  const LogicalRange mine{work.logical_first, static_cast<std::uint32_t>(work.inputs.size())};
  WEFT_TRY(announce(work, reinterpret_cast<const std::byte*>(&mine), sizeof(mine), deadline));
  std::vector<LogicalRange> ranges(ranks_);
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    std::memcpy(&ranges[r], segment_->area(r).slots[sequence_ % 2].payload, sizeof(LogicalRange));
  }
  WEFT_ASSIGN(pieces_, Pieces::of(ranges, work.logical_total, sequence_));
  return {};
}

Status SharedBackend::reduce_small(const Work& work, Deadline deadline) {
  const std::uint64_t n = work.call.count;
  const std::size_t e = work.element;
  const bool tiny = n * e <= kInlineBytes;
  // The staging area of the operation that the announcement begins.
  const std::uint64_t turn = sequence_ + 1;
  if (!tiny) std::memcpy(segment_->one_shot(rank_, turn), work.in, n * e);
  WEFT_TRY(announce(work, work.in, tiny ? n * e : 0, deadline));
  std::uint64_t begin = 0, end = n;  // what this rank wants of the result
  if (work.call.kind == CallKind::kReduceScatter) {
    for (std::uint32_t r = 0; r < rank_; ++r) begin += work.counts[r];
    end = begin + work.counts[rank_];
  } else if (work.call.kind == CallKind::kReduce && work.call.root != rank_) {
    return {};
  }
  const auto value = [&](std::uint32_t r) -> const std::byte* {
    return tiny ? segment_->area(r).slots[turn % 2].payload : segment_->one_shot(r, turn);
  };
  if (ranks_ == 2) {
    work.combine(work.out, value(0) + begin * e, value(1) + begin * e, end - begin);
    return {};
  }
  TreeNode nodes[kSmallRanks];
  const std::byte* values[kSmallRanks];
  const std::uint64_t tile = kTileBytes / e;
  for (std::uint64_t at = begin; at < end; at += tile) {
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      nodes[r] = {r, 1};
      values[r] = value(r) + at * e;
    }
    tree_combine(work.combine, {nodes, ranks_}, {values, ranks_}, std::min(tile, end - at), e,
                 work.out + (at - begin) * e, scratch_.data());
  }
  return {};
}

Status SharedBackend::reduce_staged(const Work& work, Deadline deadline) {
  if (work.inputs.empty()) WEFT_TRY(announce(work, nullptr, 0, deadline));
  const std::size_t e = work.element;
  const std::uint64_t align = 64 / e;
  const std::uint32_t most = pieces_.most;
  const bool scatter = work.call.kind == CallKind::kReduceScatter;
  const bool wanted = work.call.kind == CallKind::kAllReduce || work.call.root == rank_;
  const std::uint64_t chunk = kStageBytes / ranks_ / most / 64 * align;
  if (chunk == 0) {
    return fail(ErrorCode::kUnsupported, "{} ranks with {} pieces each do not fit a block", ranks_,
                most);
  }
  std::vector<std::uint64_t> offsets(ranks_ + 1, 0);
  std::uint64_t count = 0;
  if (scatter) {
    std::uint64_t longest = 0;
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      offsets[r + 1] = offsets[r] + work.counts[r];
      longest = std::max(longest, work.counts[r]);
    }
    count = (longest + chunk - 1) / chunk;
  } else {
    count = (work.call.count + chunk * ranks_ - 1) / (chunk * ranks_);
  }
  const auto part = [&](std::uint64_t b, std::uint32_t j) -> Cut {
    if (!scatter) return cut(work.call.count, chunk, ranks_, b, j, align);
    const std::uint64_t at = std::min(work.counts[j], b * chunk);
    return {offsets[j] + at, std::min(chunk, work.counts[j] - at)};
  };
  const std::uint64_t tile = kTileBytes / e;
  const bool stream = !scatter && work.call.count * e >= kStreamBytes;
  std::byte* const room = scratch_.data() + kPieceScratch * kTileBytes;
  std::byte* const inner = scratch_.data() + kInnerScratch * kTileBytes;

  const auto stage = [&](std::uint64_t b) -> Status {
    WEFT_TRY(wait_free(blocks_ + b, deadline));
    std::byte* const to = segment_->stage(rank_, blocks_ + b);
    for (std::uint32_t j = 0; j < ranks_; ++j) {
      if (j == rank_) continue;
      const Cut c = part(b, j);
      for (std::size_t i = 0; i < pieces_.nodes.size(); ++i) {
        if (pieces_.owner[i] != rank_) continue;
        std::byte* const place = to + (j * most + pieces_.place[i]) * chunk * e;
        if (work.inputs.empty()) {
          copy(place, work.in + c.offset * e, c.count * e, false);
          continue;
        }
        for (std::uint64_t at = 0; at < c.count; at += tile) {
          const std::uint64_t n = std::min(tile, c.count - at);
          const std::byte* value =
              own_piece(work, pieces_.nodes[i], c.offset + at, n, place + at * e, inner);
          copy(place + at * e, value, n * e, false);
        }
      }
    }
    segment_->publish(segment_->area(rank_).staged, blocks_ + b + 1);
    return {};
  };
  const auto combine = [&](std::uint64_t b) -> Status {
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      if (r != rank_) WEFT_TRY(wait_staged(r, blocks_ + b, deadline));
    }
    const Cut c = part(b, rank_);
    std::byte* const result = segment_->stage(rank_, blocks_ + b) + rank_ * most * chunk * e;
    std::vector<const std::byte*> values(pieces_.nodes.size());
    for (std::uint64_t at = 0; at < c.count; at += tile) {
      const std::uint64_t n = std::min(tile, c.count - at);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint32_t r = pieces_.owner[i];
        values[i] = r == rank_ ? own_piece(work, pieces_.nodes[i], c.offset + at, n,
                                           room + pieces_.place[i] * kTileBytes, inner)
                               : segment_->stage(r, blocks_ + b) +
                                     (rank_ * most + pieces_.place[i]) * chunk * e + at * e;
      }
      std::byte* const to =
          scatter ? work.out + (c.offset - offsets[rank_] + at) * e : result + at * e;
      tree_combine(work.combine, pieces_.nodes, values, n, e, to, scratch_.data());
      if (!scatter && wanted) copy(work.out + (c.offset + at) * e, to, n * e, stream);
    }
    segment_->publish(segment_->area(rank_).ready, blocks_ + b + 1);
    return {};
  };
  const auto take = [&](std::uint64_t b) -> Status {
    for (std::uint32_t j = 0; j < ranks_; ++j) {
      if (j == rank_) continue;
      WEFT_TRY(wait_ready(j, blocks_ + b, deadline));
      if (scatter || !wanted) continue;
      const Cut c = part(b, j);
      copy(work.out + c.offset * e, segment_->stage(j, blocks_ + b) + j * most * chunk * e,
           c.count * e, stream);
    }
    return {};
  };
  // `take` of block b-1 waits for everybody's combining of it, which came after their
  // taking of block b-2: with four places a result is never overwritten early.
  if (count > 0) WEFT_TRY(stage(0));
  for (std::uint64_t b = 0; b < count; ++b) {
    if (b + 1 < count) WEFT_TRY(stage(b + 1));
    WEFT_TRY(combine(b));
    WEFT_TRY(take(b));
  }
  blocks_ += count;
  return {};
}

Status SharedBackend::gather(const Work& work, Deadline deadline) {
  const std::size_t e = work.element;
  std::vector<std::uint64_t> offsets(ranks_ + 1, 0);
  std::uint64_t longest = 0, shortest = ~std::uint64_t{0};
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    offsets[r + 1] = offsets[r] + work.counts[r];
    longest = std::max(longest, work.counts[r]);
    shortest = std::min(shortest, work.counts[r]);
  }
  std::byte* const own = work.out + offsets[rank_] * e;
  const std::size_t own_bytes = work.counts[rank_] * e;
  if (longest * e <= kOneShotBytes) {
    const bool tiny = longest * e <= kInlineBytes;
    const std::uint64_t turn = sequence_ + 1;
    if (!tiny && own_bytes > 0) std::memcpy(segment_->one_shot(rank_, turn), work.in, own_bytes);
    WEFT_TRY(announce(work, work.in, tiny ? own_bytes : 0, deadline));
    if (own_bytes > 0 && own != work.in) std::memmove(own, work.in, own_bytes);
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      if (r == rank_ || work.counts[r] == 0) continue;
      const std::byte* from =
          tiny ? segment_->area(r).slots[sequence_ % 2].payload : segment_->one_shot(r, turn);
      std::memcpy(work.out + offsets[r] * e, from, work.counts[r] * e);
    }
    return {};
  }
  WEFT_TRY(announce(work, nullptr, 0, deadline));
  const std::uint64_t chunk = kStageBytes / e;
  const std::uint64_t count = (longest + chunk - 1) / chunk;
  const bool stream = offsets[ranks_] * e >= kStreamBytes;
  const auto part = [&](std::uint64_t b, std::uint32_t r) {
    const std::uint64_t at = std::min(work.counts[r], b * chunk);
    return Cut{at, std::min(chunk, work.counts[r] - at)};
  };
  const auto stage = [&](std::uint64_t b) -> Status {
    WEFT_TRY(wait_free(blocks_ + b, deadline));
    const Cut c = part(b, rank_);
    std::byte* const place = segment_->stage(rank_, blocks_ + b);
    copy(place, work.in + c.offset * e, c.count * e, false);
    segment_->publish(segment_->area(rank_).staged, blocks_ + b + 1);
    if (own != work.in) copy(own + c.offset * e, place, c.count * e, stream);
    return {};
  };
  if (count > 0) WEFT_TRY(stage(0));
  for (std::uint64_t b = 0; b < count; ++b) {
    if (b + 1 < count) WEFT_TRY(stage(b + 1));
    for (std::uint32_t i = 1; i < ranks_; ++i) {
      const std::uint32_t r = (rank_ + i) % ranks_;
      WEFT_TRY(wait_staged(r, blocks_ + b, deadline));
      const Cut c = part(b, r);
      copy(work.out + (offsets[r] + c.offset) * e, segment_->stage(r, blocks_ + b), c.count * e,
           stream);
    }
    segment_->publish(segment_->area(rank_).ready, blocks_ + b + 1);
  }
  blocks_ += count;
  return {};
}

Status SharedBackend::broadcast(const Work& work, Deadline deadline) {
  const std::uint32_t root = work.call.root;
  const std::size_t bytes = work.call.count * work.element;
  if (bytes <= kOneShotBytes) {
    const bool tiny = bytes <= kInlineBytes;
    const std::uint64_t turn = sequence_ + 1;
    const bool mine = root == rank_;
    if (mine && !tiny) std::memcpy(segment_->one_shot(rank_, turn), work.in, bytes);
    WEFT_TRY(announce(work, work.in, mine && tiny ? bytes : 0, deadline));
    if (mine || bytes == 0) return {};
    std::memcpy(
        work.out,
        tiny ? segment_->area(root).slots[sequence_ % 2].payload : segment_->one_shot(root, turn),
        bytes);
    return {};
  }
  WEFT_TRY(announce(work, nullptr, 0, deadline));
  const std::uint64_t count = (bytes + kStageBytes - 1) / kStageBytes;
  const bool stream = bytes >= kStreamBytes;
  for (std::uint64_t b = 0; b < count; ++b) {
    const std::size_t at = b * kStageBytes;
    const std::size_t n = std::min(kStageBytes, bytes - at);
    if (root == rank_) {
      WEFT_TRY(wait_free(blocks_ + b, deadline));
      copy(segment_->stage(rank_, blocks_ + b), work.in + at, n, false);
      segment_->publish(segment_->area(rank_).staged, blocks_ + b + 1);
    } else {
      WEFT_TRY(wait_staged(root, blocks_ + b, deadline));
      copy(work.out + at, segment_->stage(root, blocks_ + b), n, stream);
    }
    segment_->publish(segment_->area(rank_).ready, blocks_ + b + 1);
  }
  blocks_ += count;
  segment_->publish(segment_->area(rank_).staged, blocks_);
  return {};
}

Status SharedBackend::exchange(const Work& work, Deadline deadline) {
  const std::size_t e = work.element;
  const std::size_t table = 2 * ranks_ * sizeof(std::uint64_t);
  WEFT_CHECK(table <= kOneShotBytes);
  const std::uint64_t turn = sequence_ + 1;
  std::byte* const counts = segment_->one_shot(rank_, turn);
  std::memcpy(counts, work.counts.data(), table / 2);
  std::memcpy(counts + table / 2, work.receive_counts.data(), table / 2);
  WEFT_TRY(announce(work, nullptr, 0, deadline));
  std::vector<std::uint64_t> all(2 * ranks_ * ranks_);
  std::uint64_t longest = 0;
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    std::memcpy(&all[r * 2 * ranks_], segment_->one_shot(r, turn), table);
    for (std::uint32_t j = 0; j < ranks_; ++j) {
      if (j != r) longest = std::max(longest, all[r * 2 * ranks_ + j]);
    }
  }
  WEFT_TRY(check_exchange(all, ranks_, sequence_));
  std::vector<std::uint64_t> to(ranks_ + 1, 0), from(ranks_ + 1, 0);
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    to[r + 1] = to[r] + work.counts[r];
    from[r + 1] = from[r] + work.receive_counts[r];
  }
  const bool stream = from[ranks_] * e >= kStreamBytes;
  copy(work.out + from[rank_] * e, work.in + to[rank_] * e, work.counts[rank_] * e, stream);
  const std::uint64_t chunk = kStageBytes / ranks_ / 64 * 64 / e;
  const std::uint64_t count = (longest + chunk - 1) / chunk;
  const auto piece = [&](std::uint64_t whole, std::uint64_t b) {
    const std::uint64_t at = std::min(whole, b * chunk);
    return Cut{at, std::min(chunk, whole - at)};
  };
  const auto stage = [&](std::uint64_t b) -> Status {
    WEFT_TRY(wait_free(blocks_ + b, deadline));
    for (std::uint32_t j = 0; j < ranks_; ++j) {
      if (j == rank_) continue;
      const Cut c = piece(work.counts[j], b);
      copy(segment_->stage(rank_, blocks_ + b) + j * chunk * e, work.in + (to[j] + c.offset) * e,
           c.count * e, false);
    }
    segment_->publish(segment_->area(rank_).staged, blocks_ + b + 1);
    return {};
  };
  if (count > 0) WEFT_TRY(stage(0));
  for (std::uint64_t b = 0; b < count; ++b) {
    if (b + 1 < count) WEFT_TRY(stage(b + 1));
    for (std::uint32_t i = 1; i < ranks_; ++i) {
      const std::uint32_t r = (rank_ + i) % ranks_;
      WEFT_TRY(wait_staged(r, blocks_ + b, deadline));
      const Cut c = piece(work.receive_counts[r], b);
      copy(work.out + (from[r] + c.offset) * e, segment_->stage(r, blocks_ + b) + rank_ * chunk * e,
           c.count * e, stream);
    }
    segment_->publish(segment_->area(rank_).ready, blocks_ + b + 1);
  }
  blocks_ += count;
  return {};
}

Status SharedBackend::run(const Work& work, Deadline deadline, Algorithm& used) {
  const std::size_t bytes = work.call.count * work.element;
  used = bytes <= kInlineBytes    ? Algorithm::kInline
         : bytes <= kOneShotBytes ? Algorithm::kOneShot
                                  : Algorithm::kStaged;
  switch (work.call.kind) {
    case CallKind::kBarrier:
      used = Algorithm::kInline;
      return announce(work, nullptr, 0, deadline);
    case CallKind::kAllReduce:
    case CallKind::kReduce:
    case CallKind::kReduceScatter:
      if (work.inputs.empty() && ranks_ <= kSmallRanks && bytes <= kOneShotBytes) {
        return reduce_small(work, deadline);
      }
      used = Algorithm::kStaged;
      WEFT_TRY(agree_on_pieces(work, deadline));
      return reduce_staged(work, deadline);
    case CallKind::kAllGather:
      return gather(work, deadline);
    case CallKind::kBroadcast:
      return broadcast(work, deadline);
    case CallKind::kAllToAll:
      used = Algorithm::kStaged;
      return exchange(work, deadline);
    default:
      return fail(ErrorCode::kUnsupported, "{} is not a collective", to_string(work.call.kind));
  }
}

}  // namespace weft::comm
