// The texts of JSON values as expressions: white space, strings, numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/serve/constrain/automaton.h"
#include "weft/serve/constrain/grammar.h"

namespace weft::serve::constrain {

// Nothing, a space, or the end of a line with up to 20 spaces and tabs: enough for any
// layout, and no reply spends its tokens on white space.
Expr json_space();
// One character of a string, in any spelling (also \/ and \u0041, never half a
// surrogate pair), or only in the one of dump_json().
Expr json_character();
Expr json_plain_character();
// A character of the set, as dump_json() spells it: RegexOptions::spell for patterns.
Expr spell_json(const CodePoints& chars);
// Between the quotes: `text` as dump_json() spells it.
std::string json_spelling(std::string_view text);
Expr json_string();   // with quotes
Expr json_number();   // up to 15 digits each before and behind the point, exponent up to 99
Expr json_integer();  // up to 18 digits

// A bound of numbers in decimal digits.
struct DecimalBound {
  std::string number;  // "-12.5", "1e3": any JSON number
  bool exclusive = false;
};
// Numbers without exponent within the bounds, without "-0". Integers have up to 18
// digits (or as many as a bound has); others up to 15 digits together, so that no two
// of them are one double. Empty (no states) where nothing lies between.
// kUnsupported for bounds of more than 300 digits.
Result<Automaton> numbers_between(const std::optional<DecimalBound>& low,
                                  const std::optional<DecimalBound>& high, bool integers);
// Integers that `divisor` (1 to 10,000) divides.
Automaton multiples_of(std::int64_t divisor);
// What lies between the quotes of a date, time, ... ; nothing for a format that is not
// known here.
std::optional<std::string_view> format_pattern(std::string_view format);

}  // namespace weft::serve::constrain
