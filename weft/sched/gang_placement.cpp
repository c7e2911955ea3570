#include "weft/sched/gang_placement.h"

#include <algorithm>
#include <bit>

#include "weft/base/result.h"

namespace weft::sched {

bool is_compact(std::size_t nodes, std::int32_t gpus, std::int32_t largest) {
  return largest <= 0 || nodes <= static_cast<std::size_t>((gpus + largest - 1) / largest);
}

FreeNodes::FreeNodes(std::span<const std::int32_t> node_gpus,
                     std::span<const std::int32_t> node_free)
    : free_(node_free.begin(), node_free.end()) {
  for (const std::int32_t gpus : node_gpus) largest_ = std::max(largest_, gpus);
  words_ = (free_.size() + 63) / 64;
  count_.assign(static_cast<std::size_t>(largest_) + 1, 0);
  nodes_.assign(count_.size() * words_, 0);
  for (std::size_t n = 0; n < free_.size(); ++n) {
    if (node_gpus[n] == 0) free_[n] = 0;  // down
    const auto f = static_cast<std::size_t>(free_[n]);
    word_of(free_[n], n) |= std::uint64_t{1} << (n % 64);
    ++count_[f];
    total_ += free_[n];
  }
}

std::uint64_t& FreeNodes::word_of(std::int32_t free, std::size_t node) {
  return nodes_[static_cast<std::size_t>(free) * words_ + node / 64];
}

std::int32_t FreeNodes::most_free() const {
  for (std::int32_t f = largest_; f > 0; --f) {
    if (count_[static_cast<std::size_t>(f)] > 0) return f;
  }
  return 0;
}

std::vector<NodeShare> FreeNodes::place(std::int32_t gpus, Locality locality) const {
  std::vector<NodeShare> shares;
  if (gpus <= 0 || gpus > total_) return shares;
  std::int32_t left = gpus;
  const auto nodes_with = [&](std::int32_t f, auto&& use) {  // use(node) -> go on
    const auto words = std::span(nodes_).subspan(static_cast<std::size_t>(f) * words_, words_);
    for (std::size_t w = 0; w < words.size(); ++w) {
      for (std::uint64_t bits = words[w]; bits != 0; bits &= bits - 1) {
        if (!use(static_cast<std::int32_t>(w * 64) + std::countr_zero(bits))) return;
      }
    }
  };
  const auto best_fit = [&](std::int32_t need) {  // one node not in `shares` yet
    std::int32_t found = -1;
    for (std::int32_t f = need; f <= largest_ && found < 0; ++f) {
      if (count_[static_cast<std::size_t>(f)] == 0) continue;
      nodes_with(f, [&](std::int32_t node) {
        const bool used = std::any_of(shares.begin(), shares.end(),
                                      [&](const NodeShare& s) { return s.node == node; });
        if (!used) found = node;
        return used;
      });
    }
    return found;
  };
  if (left > largest_) {  // whole nodes of the largest size first
    const auto whole = static_cast<std::size_t>(left / largest_);
    if (static_cast<std::size_t>(count_[static_cast<std::size_t>(largest_)]) >= whole) {
      nodes_with(largest_, [&](std::int32_t node) {
        shares.push_back({node, largest_});
        left -= largest_;
        return shares.size() < whole;
      });
      if (left == 0) return shares;
    }
  }
  if (left <= largest_) {
    if (const std::int32_t node = best_fit(left); node >= 0) {
      shares.push_back({node, left});
      return shares;
    }
  }
  shares.clear();
  if (locality == Locality::kCompact) return shares;
  left = gpus;
  for (std::int32_t f = largest_; f > 0 && left > 0; --f) {
    if (count_[static_cast<std::size_t>(f)] == 0) continue;
    nodes_with(f, [&](std::int32_t node) {
      shares.push_back({node, std::min(f, left)});
      left -= shares.back().gpus;
      return left > 0;
    });
  }
  WEFT_CHECK(left == 0, "free counts do not add up");
  return shares;
}

void FreeNodes::move(std::int32_t node, std::int32_t to) {
  const auto n = static_cast<std::size_t>(node);
  const auto from = static_cast<std::size_t>(free_[n]);
  WEFT_CHECK(to >= 0 && to <= largest_, "node {} would have {} GPUs free of {}", node, to,
             largest_);
  const std::uint64_t bit = std::uint64_t{1} << (n % 64);
  word_of(free_[n], n) &= ~bit;
  word_of(to, n) |= bit;
  --count_[from];
  ++count_[static_cast<std::size_t>(to)];
  total_ += to - free_[n];
  free_[n] = to;
}

void FreeNodes::take(std::span<const NodeShare> shares) {
  for (const NodeShare& s : shares) move(s.node, free_[static_cast<std::size_t>(s.node)] - s.gpus);
}
void FreeNodes::release(std::span<const NodeShare> shares) {
  for (const NodeShare& s : shares) move(s.node, free_[static_cast<std::size_t>(s.node)] + s.gpus);
}

}  // namespace weft::sched
