// Numbers in replies.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::rl {

// The last number written in `text`, without thousands separators ("$1,234.50" ->
// "1234.50"); empty if there is none. With `marker` only what follows its last
// occurrence counts.
std::optional<std::string> last_number(std::string_view text);
std::optional<std::string> number_after(std::string_view text, std::string_view marker);
// Equal as values: "72", "72.0" and "+72" are.
bool same_number(std::string_view a, std::string_view b);

}  // namespace weft::rl
