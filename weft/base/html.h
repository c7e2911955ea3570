// Text into HTML.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// & < > " and ' as entities, in the spelling of Python's markupsafe (what chat
// templates' `escape` filter gives).
std::string escape_html(std::string_view text);

}  // namespace weft
