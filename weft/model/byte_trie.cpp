#include "weft/model/byte_trie.h"

#include <algorithm>

namespace weft::model {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, std::int32_t>> listed) {
  roots_.fill(-1);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < listed.size(); ++i) {
    if (!listed[i].first.empty()) order.push_back(i);
  }
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    const int compared = listed[a].first.compare(listed[b].first);
    return compared != 0 ? compared < 0 : a < b;
  });
  std::vector<std::pair<std::string_view, std::int32_t>> entries;
  entries.reserve(order.size());
  for (const std::size_t i : order) entries.push_back(listed[i]);
  // Breadth first: a node is a range of the sorted entries that share `depth` bytes.
  struct Range {
    std::size_t begin, end, depth;
    std::int32_t node;
  };
  std::vector<Range> ranges;
  const auto add_node = [&](std::size_t begin, std::size_t end, std::size_t depth) {
    const auto node = static_cast<std::int32_t>(nodes_.size());
    nodes_.emplace_back();
    ranges.push_back({begin, end, depth, node});
    return node;
  };
  const auto byte_at = [&](std::size_t entry, std::size_t depth) {
    return static_cast<unsigned char>(entries[entry].first[depth]);
  };
  const auto group_end = [&](std::size_t begin, std::size_t end, std::size_t depth) {
    std::size_t stop = begin;
    while (stop < end && byte_at(stop, depth) == byte_at(begin, depth)) ++stop;
    return stop;
  };
  for (std::size_t begin = 0; begin < entries.size();) {
    const std::size_t end = group_end(begin, entries.size(), 0);
    roots_[byte_at(begin, 0)] = add_node(begin, end, 1);
    begin = end;
  }
  for (std::size_t next = 0; next < ranges.size(); ++next) {
    Range range = ranges[next];
    while (range.begin < range.end && entries[range.begin].first.size() == range.depth) {
      nodes_[range.node].value = entries[range.begin].second;
      ++range.begin;
    }
    nodes_[range.node].first_edge = static_cast<std::int32_t>(edge_bytes_.size());
    std::int32_t edges = 0;
    for (std::size_t begin = range.begin; begin < range.end;) {
      const std::size_t end = group_end(begin, range.end, range.depth);
      edge_bytes_.push_back(byte_at(begin, range.depth));
      edge_targets_.push_back(add_node(begin, end, range.depth + 1));
      ++edges;
      begin = end;
    }
    nodes_[range.node].edges = edges;
  }
}

std::int32_t ByteTrie::child(std::int32_t node, unsigned char byte) const {
  const auto first = edge_bytes_.begin() + nodes_[node].first_edge;
  const auto last = first + nodes_[node].edges;
  const auto found = std::lower_bound(first, last, byte);
  if (found == last || *found != byte) return -1;
  return edge_targets_[found - edge_bytes_.begin()];
}

}  // namespace weft::model
