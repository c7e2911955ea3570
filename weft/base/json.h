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
// Integers beyond 64 bits become doubles.
Result<Json> parse_json(std::string_view text, std::string_view name);

// One line, invalid UTF-8 replaced by U+FFFD; never throws.
std::string dump_json(const Json& value);

// Typed access with errors that name the field: json_field<std::int64_t>(json, "n").
// T is std::string, bool, std::int64_t, int, double, float, or const Json* (any
// value, in place). A number with a fraction is no integer; 3.0 is. The optional
// form gives `fallback` when the key is absent or null.
template <class T>
Result<T> json_field(const Json& object, std::string_view key);
template <class T>
Result<T> json_field_or(const Json& object, std::string_view key, T fallback);

// The value under `key`, or null when absent or null. Linear in the number of
// keys: walk large objects (vocabularies) with items() instead.
const Json* json_find(const Json& object, std::string_view key);

}  // namespace weft
