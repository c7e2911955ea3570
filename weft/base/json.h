// JSON: simdjson reads, nlohmann writes. Keys keep their order.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

#include "weft/base/result.h"

namespace weft {

using Json = nlohmann::ordered_json;

// Parses one document. `name` (a file, "request body") begins the error, which
// gives line and column. Nesting deeper than 512 and duplicate keys are refused.
Result<Json> parse_json(std::string_view text, std::string_view name);

// One line, invalid UTF-8 replaced by U+FFFD; never throws.
std::string dump_json(const Json& value);

// Typed access with errors that name the field: field<int64_t>(json, "n").
// The optional form gives `fallback` when the key is absent or null.
template <class T>
Result<T> json_field(const Json& object, std::string_view key);
template <class T>
Result<T> json_field_or(const Json& object, std::string_view key, T fallback);

}  // namespace weft
