// Several schemas as one. Only for json_schema.cpp.
#pragma once

#include <string>
#include <string_view>

#include "weft/base/json.h"
#include "weft/base/result.h"

namespace weft::serve::constrain {

// Where a pattern of `pattern` beside others is kept, as an array: no JSON schema has
// this key.
inline constexpr const char* kPatterns = "\x01patterns";

struct SchemaPlace {
  const Json& root;                // that references look into
  std::string path;                // of the schema, for errors
  std::int64_t* budget = nullptr;  // JSON values that may still be copied; never null
  int depth = 0;                   // references and allOf followed so far
};

// The schema that `reference` ("#/$defs/x") means; kNotFound or kUnsupported.
Result<const Json*> resolve(const Json& root, const std::string& reference, std::string_view path);
// The schema without $ref and allOf at its top: what they say is merged in. `false` if
// nothing can fulfil it. kUnsupported where two keywords cannot be merged.
Result<Json> flattened(const Json& schema, const SchemaPlace& place);
// Whether no value fulfils both, as far as types, values, bounds and required
// properties show it. Both are flattened.
bool disjoint(const Json& a, const Json& b, const SchemaPlace& place);
// The types that a flattened schema admits, as bits (kNull, ...).
enum TypeBit : unsigned {
  kNull = 1,
  kBoolean = 2,
  kObject = 4,
  kArray = 8,
  kString = 16,
  kInteger = 32,
  kFraction = 64,
  kAllTypes = 127,
};
Result<unsigned> types_of(const Json& schema, std::string_view path);
// The types that its keywords speak of; 0 if none does. Without `type`, replies are of
// these alone.
unsigned spoken_types(const Json& schema);
unsigned type_of_value(const Json& value);
// Whether the keyword says nothing about which values are valid.
bool is_annotation(std::string_view keyword);
// Whether a schema has nothing but annotations (or is true).
bool says_nothing(const Json& schema);

}  // namespace weft::serve::constrain
