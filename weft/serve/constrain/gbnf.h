// GBNF, the grammar notation of llama.cpp.
#pragma once

#include <string_view>

#include "weft/base/result.h"
#include "weft/serve/constrain/grammar.h"

namespace weft::serve::constrain {

// Rules `name ::= ...` with "texts", [classes], `.`, groups, |, * + ? {m,n} and
// # comments; the rule `root` is the whole reply. Errors give the line and name the
// rule: unknown or doubled rules, syntax, bounds (kMaxNesting, kMaxRepeat, kMaxRules).
Result<Grammar> read_gbnf(std::string_view text);

}  // namespace weft::serve::constrain
