// Base64 as rank files and tokenizer.json carry it (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::model {

// nullopt when a character is not of the alphabet or the length is impossible;
// padding may be absent.
std::optional<std::string> base64_decode(std::string_view text);
std::string base64_encode(std::string_view bytes);

}  // namespace weft::model
