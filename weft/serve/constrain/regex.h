// Regular expressions as grammars. docs/constrained-output.md lists the syntax.
#pragma once

#include <functional>
#include <string_view>

#include "weft/base/result.h"
#include "weft/serve/constrain/grammar.h"

namespace weft::serve::constrain {

struct RegexOptions {
  // False: the whole text matches, as with Python's fullmatch. True: a part of it does
  // where the expression has no anchors, as JSON Schema's `pattern` means it.
  bool search = false;
  // How a character of a set is spelled; in UTF-8 if empty.
  std::function<Expr(const CodePoints&)> spell;
};

// Reads the part of Perl's syntax that is regular: literals, . [] \d \w \s \D \W \S,
// \x \u escapes, groups, |, * + ? {m,n} (lazy ones mean the same), ^ and $ at the ends.
// kInvalidArgument or kUnsupported (look-around, back references, \b, flags) with the
// position in the expression.
Result<Expr> read_regex(std::string_view pattern, const RegexOptions& options = {});

}  // namespace weft::serve::constrain
