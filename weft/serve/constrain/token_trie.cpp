#include "weft/serve/constrain/token_trie.h"

#include <algorithm>
#include <set>

namespace weft::serve::constrain {

namespace {
constexpr std::size_t kLongestToken = 1000;
}

TokenTrie::TokenTrie(const model::Tokenizer& tokenizer, std::int64_t vocab_size,
                     std::vector<model::TokenId> eos)
    : vocab_size_(vocab_size), eos_(std::move(eos)) {
  std::ranges::sort(eos_);
  eos_.erase(std::unique(eos_.begin(), eos_.end()), eos_.end());
  std::set<model::TokenId> left_out(eos_.begin(), eos_.end());
  if (tokenizer.bos() >= 0) left_out.insert(tokenizer.bos());
  for (const auto& special : tokenizer.special_tokens()) {
    if (special.special) left_out.insert(special.id);
  }
  const std::int64_t known = std::min(vocab_size, tokenizer.vocab_size());
  bytes_.resize(static_cast<std::size_t>(std::max<std::int64_t>(known, 0)));
  std::vector<model::TokenId> sorted;
  for (std::int64_t i = 0; i < known; ++i) {
    const auto id = static_cast<model::TokenId>(i);
    if (left_out.contains(id)) continue;
    std::string bytes = tokenizer.token_bytes(id);
    if (bytes.empty() || bytes.size() > kLongestToken) continue;
    bytes_[static_cast<std::size_t>(i)] = std::move(bytes);
    sorted.push_back(id);
  }
  const auto spelled = [&](model::TokenId id) -> const std::string& {
    return bytes_[static_cast<std::size_t>(id)];
  };
  std::ranges::stable_sort(
      sorted, [&](model::TokenId a, model::TokenId b) { return spelled(a) < spelled(b); });
  nodes_.push_back({});
  std::vector<std::int32_t> path{0};  // nodes from the root to the last one added
  const auto close = [&](std::size_t depth) {
    while (path.size() > depth + 1) {
      nodes_[static_cast<std::size_t>(path.back())].end = static_cast<std::int32_t>(nodes_.size());
      path.pop_back();
    }
  };
  const std::string* last = nullptr;
  for (const model::TokenId id : sorted) {
    const std::string& bytes = spelled(id);
    std::size_t common = 0;
    if (last != nullptr) {
      common = static_cast<std::size_t>(std::ranges::mismatch(*last, bytes).in2 - bytes.begin());
    }
    close(common);
    for (std::size_t at = common; at < bytes.size(); ++at) {
      Node node;
      node.byte = static_cast<std::uint8_t>(bytes[at]);
      node.depth = static_cast<std::uint16_t>(at + 1);
      node.first_token = static_cast<std::int32_t>(tokens_.size());
      path.push_back(static_cast<std::int32_t>(nodes_.size()));
      nodes_.push_back(node);
      alphabet_.set(node.byte);
    }
    ++nodes_[static_cast<std::size_t>(path.back())].tokens;
    tokens_.push_back(id);
    longest_ = std::max(longest_, static_cast<int>(bytes.size()));
    last = &bytes;
  }
  close(0);
  nodes_[0].end = static_cast<std::int32_t>(nodes_.size());
}

bool TokenTrie::is_eos(model::TokenId id) const { return std::ranges::binary_search(eos_, id); }

std::string_view TokenTrie::bytes(model::TokenId id) const {
  return id >= 0 && static_cast<std::size_t>(id) < bytes_.size()
             ? std::string_view(bytes_[static_cast<std::size_t>(id)])
             : std::string_view();
}

}  // namespace weft::serve::constrain
