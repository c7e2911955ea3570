// TokenTrie: a vocabulary as a tree over bytes, walked to find which tokens fit.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/model/tokenizer.h"

namespace weft::serve::constrain {

// Nodes in the order of a walk down first; node 0 is the root. The nodes below node i
// are [i + 1, end(i)). Immutable; safe to read from many threads.
// Special tokens and those without bytes are not in it: no reply under a constraint
// has them, except one that ends it.
class TokenTrie {
 public:
  struct Node {
    std::uint8_t byte = 0;
    std::uint16_t depth = 0;  // bytes from the root
    std::int32_t end = 0;
    std::int32_t first_token = 0, tokens = 0;  // in tokens(), those spelled by this node
  };

  // `vocab_size` of the model's logits; tokens at or above it are left out. `eos` are
  // the tokens that end a reply. Tokens of more than 1,000 bytes are left out.
  TokenTrie(const model::Tokenizer& tokenizer, std::int64_t vocab_size,
            std::vector<model::TokenId> eos);

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const model::TokenId> tokens(const Node& node) const {
    return std::span(tokens_).subspan(static_cast<std::size_t>(node.first_token),
                                      static_cast<std::size_t>(node.tokens));
  }
  std::span<const model::TokenId> eos() const { return eos_; }
  bool is_eos(model::TokenId id) const;
  // The bytes of a token that is in the tree, else empty.
  std::string_view bytes(model::TokenId id) const;
  std::bitset<256> alphabet() const { return alphabet_; }  // bytes of any token
  std::int64_t vocab_size() const { return vocab_size_; }
  std::size_t words() const { return (static_cast<std::size_t>(vocab_size_) + 63) / 64; }
  int longest() const { return longest_; }  // bytes of a token

 private:
  std::int64_t vocab_size_;
  std::vector<model::TokenId> eos_;
  std::vector<Node> nodes_;
  std::vector<model::TokenId> tokens_;
  std::vector<std::string> bytes_;
  std::bitset<256> alphabet_;
  int longest_ = 0;
};

}  // namespace weft::serve::constrain
