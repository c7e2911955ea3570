// A set of byte strings with values, searched by prefix.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::model {

// Immutable after construction; the strings need not outlive it.
class ByteTrie {
 public:
  ByteTrie() { roots_.fill(-1); }
  // Of equal strings the last one counts; empty ones are left out.
  explicit ByteTrie(std::vector<std::pair<std::string_view, std::int32_t>> listed);

  bool empty() const { return nodes_.empty(); }
  bool starts(unsigned char byte) const { return roots_[byte] >= 0; }

  // Calls visit(length, value) for each entry that is a prefix of text[at..],
  // shortest first.
  template <class Visit>
  void prefixes(std::string_view text, std::size_t at, Visit visit) const {
    if (at >= text.size()) return;
    std::int32_t node = roots_[static_cast<unsigned char>(text[at])];
    for (std::size_t position = at + 1; node >= 0; ++position) {
      if (nodes_[node].value >= 0) visit(position - at, nodes_[node].value);
      if (position == text.size()) return;
      node = child(node, static_cast<unsigned char>(text[position]));
    }
  }

  // The longest entry that is a prefix of text[at..]: its length (0 = none).
  std::size_t longest(std::string_view text, std::size_t at, std::int32_t& value) const {
    std::size_t best = 0;
    prefixes(text, at, [&](std::size_t length, std::int32_t found) {
      best = length;
      value = found;
    });
    return best;
  }

 private:
  struct Node {
    std::int32_t value = -1;
    std::int32_t first_edge = 0;
    std::int32_t edges = 0;
  };
  std::int32_t child(std::int32_t node, unsigned char byte) const;

  std::array<std::int32_t, 256> roots_;
  std::vector<Node> nodes_;
  std::vector<unsigned char> edge_bytes_;  // of a node: sorted
  std::vector<std::int32_t> edge_targets_;
};

}  // namespace weft::model
