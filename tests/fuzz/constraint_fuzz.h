// Any text is a constraint of `kind` or gets a typed error, in bounded time; a reply that
// takes only allowed tokens never gets stuck before it may end.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "tests/support/byte_tokenizer.h"
#include "weft/serve/constrain/constraint.h"

namespace weft::test {

inline void fuzz_constraint(serve::constrain::ConstraintSpec::Kind kind, const std::uint8_t* data,
                            std::size_t size) {
  using namespace serve::constrain;
  static const auto kTrie = [] {
    const ByteTokenizer tokenizer(json_pieces());
    return std::make_shared<const TokenTrie>(tokenizer, tokenizer.vocab_size(), tokenizer.eos());
  }();
  ConstraintSpec spec;
  spec.kind = kind;
  spec.text.assign(reinterpret_cast<const char*>(data), size);
  const auto made = make_constraint(spec, kTrie);
  if (!made) {
    WEFT_CHECK(!made.error().message.empty());
    return;
  }
  ConstraintState state(*made);
  for (std::size_t i = 0; i < 40 && !state.complete(); ++i) {
    const auto allowed = state.allowed();
    if (!allowed) {
      WEFT_CHECK(!allowed.error().message.empty());
      return;
    }
    // The allowed token that the input's bytes choose.
    std::vector<model::TokenId> ids;
    for (std::size_t w = 0; w < allowed->size(); ++w) {
      for (std::uint64_t word = (*allowed)[w]; word != 0; word &= word - 1) {
        ids.push_back(
            static_cast<model::TokenId>(w * 64 + static_cast<std::size_t>(std::countr_zero(word))));
      }
    }
    WEFT_CHECK(!ids.empty());
    const auto id = ids[(size == 0 ? 0 : data[i % size] * 7 + i) % ids.size()];
    if (kTrie->is_eos(id)) WEFT_CHECK(state.accepting());
    // A limit of depth may stop a reply; nothing else does.
    if (!state.accept(id)) return;
  }
}

}  // namespace weft::test
