// The nearest known name to a mistyped one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace weft {

// Optimal string alignment distance: insertions, deletions, substitutions and
// swaps of neighbours (Damerau 1964) count one each.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The name of `names` nearest to `name`, or "" when none is within a third of
// its length (at least 2 edits). For dotted names the last part is compared as
// well, so that a key in the wrong table is found.
std::string nearest_name(std::string_view name, std::span<const std::string> names);

}  // namespace weft
