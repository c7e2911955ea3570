// The page at "/": a plain chat with the served model, in one file.
#pragma once

#include <string_view>

namespace weft::serve {

// Self-contained HTML: no request but to this server. `?prompt=...` sends a prompt
// when the page opens.
std::string_view chat_page();

}  // namespace weft::serve
