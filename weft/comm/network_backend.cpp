#include "weft/comm/network_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace weft::comm {
namespace {

constexpr std::size_t kSmallBytes = 8 << 10;
constexpr std::size_t kBlockBytes = 256 << 10;  // of one rank's part
constexpr std::size_t kTileBytes = 8 << 10;
constexpr std::uint64_t kBlocksAhead = 3;
constexpr std::size_t kScratchTiles = 44;  // as in shared_backend.cpp
constexpr std::uint32_t kFirstStep = 16;   // below: announcements

}  // namespace

NetworkBackend::NetworkBackend(GroupView view, std::uint32_t rank, Rendezvous& rendezvous,
                               Transport& transport)
    : view_(std::move(view)),
      rank_(rank),
      ranks_(static_cast<std::uint32_t>(view_.members.size())),
      rendezvous_(rendezvous),
      transport_(transport),
      notices_(ranks_),
      small_(ranks_) {
  scratch_.resize(kScratchTiles * kTileBytes);
}

Result<std::unique_ptr<Backend>> NetworkBackend::open(const GroupView& view, std::uint32_t rank,
                                                      Rendezvous& rendezvous, Transport& transport,
                                                      Deadline deadline) {
  WEFT_TRY(
      rendezvous.put_if_absent(fmt::format("address/{}", view.members[rank]), transport.address()));
  for (const MemberId member : view.members) {
    if (member == view.members[rank] || transport.connected(member)) continue;
    WEFT_ASSIGN(const std::string address,
                rendezvous.wait(fmt::format("address/{}", member), deadline));
    WEFT_TRY(transport.connect(address, deadline));
  }
  auto backend =
      std::unique_ptr<NetworkBackend>(new NetworkBackend(view, rank, rendezvous, transport));
  // Nobody leaves before all can be reached.
  Work barrier;
  Algorithm used = Algorithm::kNone;
  WEFT_TRY(backend->run(barrier, deadline, used));
  return backend;
}

Verdict NetworkBackend::agree(const Verdict& verdict) {
  const std::string key = fmt::format("verdict/{}/{}", view_.id, view_.epoch);
  const auto first = rendezvous_.put_if_absent(key, fmt::format("{}", pack(verdict)));
  const Verdict agreed =
      first ? unpack_verdict(std::strtoull(first->c_str(), nullptr, 10)) : verdict;
  if (!ended_) {
    ended_ = true;
    transport_.set_epoch(view_.id, view_.epoch + 1);
    for (const MemberId member : view_.members) {
      if (member != view_.members[rank_]) {
        transport_.send_abort(member, view_.id, view_.epoch, first ? *first : "");
      }
    }
    for (int i = 0; i < 16; ++i) transport_.progress();
  }
  return agreed;
}

Status NetworkBackend::send(std::uint32_t to, std::uint32_t step, const std::byte* data,
                            std::size_t bytes, std::vector<Pending>& into) {
  const MessageKey key{.group = view_.id,
                       .epoch = view_.epoch,
                       .op = static_cast<std::uint32_t>(sequence_),
                       .step = step,
                       .source = view_.members[rank_]};
  blamed_ = to;
  WEFT_ASSIGN(Ticket ticket, transport_.post_send(view_.members[to], key, {data, bytes}));
  into.push_back({std::move(ticket), to});
  return {};
}

Status NetworkBackend::receive(std::uint32_t from, std::uint32_t step, std::byte* data,
                               std::size_t bytes, std::vector<Pending>& into) {
  const MessageKey key{.group = view_.id,
                       .epoch = view_.epoch,
                       .op = static_cast<std::uint32_t>(sequence_),
                       .step = step,
                       .source = view_.members[from]};
  blamed_ = from;
  WEFT_ASSIGN(Ticket ticket, transport_.post_receive(key, {data, bytes}));
  into.push_back({std::move(ticket), from});
  return {};
}

Status NetworkBackend::finish(std::vector<Pending>& pending, Status result) {
  for (std::size_t i = 0; i < pending.size(); ++i) {
    if (result) {
      blamed_ = pending[i].rank;
      result = transport_.wait(pending[i].ticket, deadline_);
    } else {
      transport_.cancel(pending[i].ticket);  // buffers are ours again
    }
  }
  pending.clear();
  return result;
}

Status NetworkBackend::announce(const Work& work, const std::byte* data, std::size_t bytes,
                                std::span<const std::size_t> expected) {
  Notice mine{};
  mine.call = work.call;
  const bool fits = bytes <= kNoticeBytes;
  if (fits && bytes > 0) std::memcpy(mine.data, data, bytes);
  std::vector<Pending> pending;
  const auto post = [&]() -> Status {
    for (std::uint32_t i = 1; i < ranks_; ++i) {
      const std::uint32_t to = (rank_ + i) % ranks_;
      WEFT_TRY(send(to, 0, reinterpret_cast<const std::byte*>(&mine), sizeof(mine), pending));
      if (!fits) WEFT_TRY(send(to, 1, data, bytes, pending));
    }
    for (std::uint32_t i = 1; i < ranks_; ++i) {
      const std::uint32_t from = (rank_ + ranks_ - i) % ranks_;
      WEFT_TRY(
          receive(from, 0, reinterpret_cast<std::byte*>(&notices_[from]), sizeof(Notice), pending));
    }
    return {};
  };
  WEFT_TRY(finish(pending, post()));
  notices_[rank_] = mine;
  bool equal = true;
  for (const Notice& notice : notices_) equal = equal && notice.call == work.call;
  if (!equal) {
    std::vector<Call> calls;
    for (const Notice& notice : notices_) calls.push_back(notice.call);
    return std::unexpected(mismatch(calls, sequence_));
  }
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    const std::size_t size = expected.empty() ? bytes : expected[r];
    if (size <= kNoticeBytes) {
      small_[r].assign(notices_[r].data, notices_[r].data + size);
    } else if (r == rank_) {
      small_[r].assign(data, data + size);
    } else {
      small_[r].resize(size);
      if (const Status posted = receive(r, 1, small_[r].data(), size, pending); !posted) {
        return finish(pending, posted);
      }
    }
  }
  return finish(pending);
}

Status NetworkBackend::small_reduce(const Work& work) {
  const std::uint64_t n = work.call.count;
  const std::size_t e = work.element;
  WEFT_TRY(announce(work, work.in, n * e));
  std::uint64_t begin = 0, end = n;
  if (work.call.kind == CallKind::kReduceScatter) {
    for (std::uint32_t r = 0; r < rank_; ++r) begin += work.counts[r];
    end = begin + work.counts[rank_];
  } else if (work.call.kind == CallKind::kReduce && work.call.root != rank_) {
    return {};
  }
  const Pieces pieces = Pieces::one_each(ranks_);
  std::vector<const std::byte*> values;
  for (std::uint32_t r = 0; r < ranks_; ++r) values.push_back(small_[r].data() + begin * e);
  if (end > begin) {
    tree_combine(work.combine, pieces.nodes, values, end - begin, e, work.out, scratch_.data());
  }
  return {};
}

Status NetworkBackend::large_reduce(const Work& work) {
  const std::size_t e = work.element;
  const std::uint64_t align = 64 / e;
  const bool scatter = work.call.kind == CallKind::kReduceScatter;
  const bool all = work.call.kind == CallKind::kAllReduce;
  Pieces pieces = Pieces::one_each(ranks_);
  if (work.inputs.empty()) {
    WEFT_TRY(announce(work, nullptr, 0));
  } else {
    const LogicalRange mine{work.logical_first, static_cast<std::uint32_t>(work.inputs.size())};
    WEFT_TRY(announce(work, reinterpret_cast<const std::byte*>(&mine), sizeof(mine)));
    std::vector<LogicalRange> ranges(ranks_);
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      std::memcpy(&ranges[r], small_[r].data(), sizeof(LogicalRange));
    }
    WEFT_ASSIGN(pieces, Pieces::of(ranges, work.logical_total, sequence_));
  }
  std::vector<std::uint64_t> offsets(ranks_ + 1, 0);
  std::uint64_t longest = 0;
  if (scatter) {
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      offsets[r + 1] = offsets[r] + work.counts[r];
      longest = std::max(longest, work.counts[r]);
    }
  } else {
    longest = (work.call.count + ranks_ - 1) / ranks_;
  }
  const std::uint64_t chunk = kBlockBytes / e;
  const std::uint64_t count = (longest + chunk - 1) / chunk;
  const auto part = [&](std::uint64_t b, std::uint32_t j) -> Cut {
    if (!scatter) return cut(work.call.count, chunk, ranks_, b, j, align);
    const std::uint64_t at = std::min(work.counts[j], b * chunk);
    return {offsets[j] + at, std::min(chunk, work.counts[j] - at)};
  };
  // Staging: what comes from each rank, and (logical ranks) what goes to each.
  const std::size_t area = pieces.most * chunk * e;
  const std::size_t sides = work.inputs.empty() ? 1 : 2;
  staging_.resize(std::min(kBlocksAhead, count) * ranks_ * area * sides);
  const auto incoming = [&](std::uint64_t b, std::uint32_t r) {
    return staging_.data() + ((b % kBlocksAhead) * sides * ranks_ + r) * area;
  };
  const auto outgoing = [&](std::uint64_t b, std::uint32_t r) {
    return staging_.data() + (((b % kBlocksAhead) * sides + 1) * ranks_ + r) * area;
  };
  const auto input_step = [](std::uint64_t b) {
    return static_cast<std::uint32_t>(kFirstStep + 2 * b);
  };
  const auto result_step = [&](std::uint64_t b) { return input_step(b) + 1; };
  const bool wanted = all || (!scatter && work.call.root == rank_);
  const std::uint64_t tile = kTileBytes / e;
  std::byte* const inner = scratch_.data() + 20 * kTileBytes;
  std::byte* const room = scratch_.data() + 30 * kTileBytes;

  std::vector<Pending> inputs[kBlocksAhead], sends[kBlocksAhead], results[kBlocksAhead];
  const auto post = [&](std::uint64_t b) -> Status {
    const std::uint64_t s = b % kBlocksAhead;
    const Cut own = part(b, rank_);
    for (std::uint32_t i = 1; i < ranks_; ++i) {
      const std::uint32_t from = (rank_ + ranks_ - i) % ranks_;
      if (own.count > 0) {
        WEFT_TRY(receive(from, input_step(b), incoming(b, from), pieces.held[from] * own.count * e,
                         inputs[s]));
      }
      const Cut other = part(b, from);
      if (wanted && other.count > 0) {
        WEFT_TRY(receive(from, result_step(b), work.out + other.offset * e, other.count * e,
                         results[s]));
      }
    }
    for (std::uint32_t i = 1; i < ranks_; ++i) {
      const std::uint32_t to = (rank_ + i) % ranks_;
      const Cut c = part(b, to);
      if (c.count == 0) continue;
      const std::byte* data = work.in + c.offset * e;
      if (!work.inputs.empty()) {
        std::byte* const place = outgoing(b, to);
        for (std::size_t p = 0; p < pieces.nodes.size(); ++p) {
          if (pieces.owner[p] != rank_) continue;
          std::byte* const target = place + pieces.place[p] * c.count * e;
          for (std::uint64_t at = 0; at < c.count; at += tile) {
            const std::uint64_t n = std::min(tile, c.count - at);
            const std::byte* value =
                own_piece(work, pieces.nodes[p], c.offset + at, n, target + at * e, inner);
            if (value != target + at * e) std::memcpy(target + at * e, value, n * e);
          }
        }
        data = place;
      }
      WEFT_TRY(send(to, input_step(b), data, pieces.held[rank_] * c.count * e, sends[s]));
    }
    return {};
  };
  const auto combine = [&](std::uint64_t b) -> Status {
    const std::uint64_t s = b % kBlocksAhead;
    WEFT_TRY(finish(inputs[s]));
    const Cut own = part(b, rank_);
    if (own.count == 0) return {};
    // Where this rank does not want the result, it still makes its part of it.
    std::byte* result = scatter  ? work.out + (own.offset - offsets[rank_]) * e
                        : wanted ? work.out + own.offset * e
                                 : incoming(b, rank_);
    std::vector<const std::byte*> values(pieces.nodes.size());
    for (std::uint64_t at = 0; at < own.count; at += tile) {
      const std::uint64_t n = std::min(tile, own.count - at);
      for (std::size_t p = 0; p < values.size(); ++p) {
        const std::uint32_t r = pieces.owner[p];
        values[p] = r == rank_ ? own_piece(work, pieces.nodes[p], own.offset + at, n,
                                           room + pieces.place[p] * kTileBytes, inner)
                               : incoming(b, r) + (pieces.place[p] * own.count + at) * e;
      }
      tree_combine(work.combine, pieces.nodes, values, n, e, result + at * e, scratch_.data());
    }
    if (scatter) return {};
    for (std::uint32_t i = 1; i < ranks_; ++i) {
      const std::uint32_t to = (rank_ + i) % ranks_;
      if (all || work.call.root == to) {
        WEFT_TRY(send(to, result_step(b), result, own.count * e, sends[s]));
      }
    }
    return {};
  };
  const auto close = [&](std::uint64_t b) -> Status {
    WEFT_TRY(finish(results[b % kBlocksAhead]));
    return finish(sends[b % kBlocksAhead]);
  };
  const auto blocks = [&]() -> Status {
    if (count > 0) WEFT_TRY(post(0));
    for (std::uint64_t b = 0; b < count; ++b) {
      if (b + 1 < count) {
        if (b + 1 >= kBlocksAhead) WEFT_TRY(close(b + 1 - kBlocksAhead));
        WEFT_TRY(post(b + 1));
      }
      WEFT_TRY(combine(b));
    }
    for (std::uint64_t b = count > kBlocksAhead ? count - kBlocksAhead : 0; b < count; ++b) {
      WEFT_TRY(close(b));
    }
    return {};
  };
  const Status done = blocks();
  if (done) return {};
  for (std::uint64_t s = 0; s < kBlocksAhead; ++s) {
    for (auto* list : {&inputs[s], &sends[s], &results[s]}) {
      for (const Pending& p : *list) transport_.cancel(p.ticket);
    }
  }
  return done;
}

Status NetworkBackend::gather(const Work& work) {
  const std::size_t e = work.element;
  std::vector<std::uint64_t> offsets(ranks_ + 1, 0);
  std::vector<std::size_t> sizes(ranks_);
  std::size_t longest = 0;
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    offsets[r + 1] = offsets[r] + work.counts[r];
    sizes[r] = work.counts[r] * e;
    longest = std::max(longest, sizes[r]);
  }
  std::byte* const own = work.out + offsets[rank_] * e;
  if (longest <= kSmallBytes) {
    WEFT_TRY(announce(work, work.in, sizes[rank_], sizes));
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      if (sizes[r] > 0) std::memmove(work.out + offsets[r] * e, small_[r].data(), sizes[r]);
    }
    return {};
  }
  WEFT_TRY(announce(work, nullptr, 0));
  std::vector<Pending> pending;
  const auto post = [&]() -> Status {
    for (std::uint32_t i = 1; i < ranks_; ++i) {
      const std::uint32_t from = (rank_ + ranks_ - i) % ranks_;
      if (sizes[from] > 0) {
        WEFT_TRY(receive(from, kFirstStep, work.out + offsets[from] * e, sizes[from], pending));
      }
    }
    for (std::uint32_t i = 1; i < ranks_ && sizes[rank_] > 0; ++i) {
      WEFT_TRY(send((rank_ + i) % ranks_, kFirstStep, work.in, sizes[rank_], pending));
    }
    return {};
  };
  const Status posted = post();
  if (own != work.in && sizes[rank_] > 0) std::memmove(own, work.in, sizes[rank_]);
  return finish(pending, posted);
}

Status NetworkBackend::broadcast(const Work& work) {
  const std::uint32_t root = work.call.root;
  const std::size_t bytes = work.call.count * work.element;
  if (bytes <= kSmallBytes) {
    std::vector<std::size_t> sizes(ranks_, 0);
    sizes[root] = bytes;
    WEFT_TRY(announce(work, work.in, root == rank_ ? bytes : 0, sizes));
    if (root != rank_ && bytes > 0) std::memcpy(work.out, small_[root].data(), bytes);
    return {};
  }
  WEFT_TRY(announce(work, nullptr, 0));
  // A binomial tree, blocks following each other down it.
  const std::uint32_t place = (rank_ + ranks_ - root) % ranks_;
  std::uint32_t top = 1;
  while (top < ranks_ && (place & top) == 0) top *= 2;
  const std::size_t block = ranks_ == 2 ? bytes : std::size_t{1} << 20;
  const std::uint64_t count = (bytes + block - 1) / block;
  std::vector<Pending> sends, incoming;
  const auto blocks = [&]() -> Status {
    if (place != 0) {
      const std::uint32_t parent = (place - top + root) % ranks_;
      for (std::uint64_t b = 0; b < count; ++b) {
        WEFT_TRY(receive(parent, static_cast<std::uint32_t>(kFirstStep + b), work.out + b * block,
                         std::min(block, bytes - b * block), incoming));
      }
    }
    for (std::uint64_t b = 0; b < count; ++b) {
      if (place != 0) {
        blamed_ = incoming[b].rank;
        WEFT_TRY(transport_.wait(incoming[b].ticket, deadline_));
      }
      for (std::uint32_t bit = top / 2; bit > 0; bit /= 2) {
        if (place + bit >= ranks_) continue;
        WEFT_TRY(send((place + bit + root) % ranks_, static_cast<std::uint32_t>(kFirstStep + b),
                      work.out + b * block, std::min(block, bytes - b * block), sends));
      }
    }
    return {};
  };
  const Status done = blocks();
  if (!done) {
    for (const Pending& p : incoming) transport_.cancel(p.ticket);
    for (const Pending& p : sends) transport_.cancel(p.ticket);
    return done;
  }
  return finish(sends);
}

Status NetworkBackend::exchange(const Work& work) {
  const std::size_t e = work.element;
  std::vector<std::uint64_t> table(2 * ranks_);
  std::ranges::copy(work.counts, table.begin());
  std::ranges::copy(work.receive_counts, table.begin() + ranks_);
  WEFT_TRY(announce(work, reinterpret_cast<const std::byte*>(table.data()), table.size() * 8));
  std::vector<std::uint64_t> all(2 * ranks_ * ranks_);
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    std::memcpy(&all[2 * r * ranks_], small_[r].data(), table.size() * 8);
  }
  WEFT_TRY(check_exchange(all, ranks_, sequence_));
  std::vector<std::uint64_t> to(ranks_ + 1, 0), from(ranks_ + 1, 0);
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    to[r + 1] = to[r] + work.counts[r];
    from[r + 1] = from[r] + work.receive_counts[r];
  }
  std::vector<Pending> pending;
  const auto post = [&]() -> Status {
    for (std::uint32_t i = 1; i < ranks_; ++i) {
      const std::uint32_t r = (rank_ + ranks_ - i) % ranks_;
      if (work.receive_counts[r] == 0) continue;
      WEFT_TRY(receive(r, kFirstStep, work.out + from[r] * e, work.receive_counts[r] * e, pending));
    }
    for (std::uint32_t i = 1; i < ranks_; ++i) {
      const std::uint32_t r = (rank_ + i) % ranks_;
      if (work.counts[r] == 0) continue;
      WEFT_TRY(send(r, kFirstStep, work.in + to[r] * e, work.counts[r] * e, pending));
    }
    return {};
  };
  const Status posted = post();
  if (work.counts[rank_] > 0) {
    std::memcpy(work.out + from[rank_] * e, work.in + to[rank_] * e, work.counts[rank_] * e);
  }
  return finish(pending, posted);
}

Status NetworkBackend::collective(const Work& work, Algorithm& used) {
  const std::size_t bytes = work.call.count * work.element;
  used = bytes <= kSmallBytes ? Algorithm::kInline : Algorithm::kDirect;
  switch (work.call.kind) {
    case CallKind::kBarrier:
      return announce(work, nullptr, 0);
    case CallKind::kAllReduce:
    case CallKind::kReduce:
    case CallKind::kReduceScatter:
      if (work.inputs.empty() && bytes <= kSmallBytes) return small_reduce(work);
      used = Algorithm::kDirect;
      return large_reduce(work);
    case CallKind::kAllGather:
      return gather(work);
    case CallKind::kBroadcast:
      if (used == Algorithm::kDirect) used = Algorithm::kTree;
      return broadcast(work);
    case CallKind::kAllToAll:
      used = Algorithm::kDirect;
      return exchange(work);
    default:
      return fail(ErrorCode::kUnsupported, "{} is not a collective", to_string(work.call.kind));
  }
}

Status NetworkBackend::run(const Work& work, Deadline deadline, Algorithm& used) {
  deadline_ = deadline;
  ++sequence_;
  blamed_ = rank_;
  const Status status = ended_ ? fail(ErrorCode::kCancelled, "") : collective(work, used);
  if (status) return status;
  const ErrorCode code = status.error().code;
  // The calls differed: nothing is lost, the epoch goes on.
  if (code == ErrorCode::kInvalidArgument || code == ErrorCode::kUnsupported) return status;
  Verdict verdict;
  verdict.cause = code == ErrorCode::kDeadlineExceeded ? Verdict::Cause::kLate
                  : code == ErrorCode::kCancelled      ? Verdict::Cause::kFenced
                                                       : Verdict::Cause::kDead;
  verdict.rank = blamed_;
  verdict.operation = static_cast<std::uint32_t>(sequence_);
  return std::unexpected(error_of(agree(verdict), view_.id, view_.epoch));
}

}  // namespace weft::comm
