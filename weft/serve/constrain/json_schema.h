// JSON schemas as grammars. docs/constrained-output.md lists the keywords.
#pragma once

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/serve/constrain/grammar.h"

namespace weft::serve::constrain {

// Every text of the grammar is a JSON value that the schema (draft 2020-12, draft 7
// where they agree) accepts; some that it accepts are not of the grammar, as the page
// says. A keyword that cannot be kept is refused (kUnsupported), never ignored; a
// schema that nothing fulfils is kInvalidArgument. Errors name the place, as
// "#/properties/age/minimum".
Result<Grammar> read_json_schema(const Json& schema);
// Any object, or any value.
Grammar any_json(bool only_objects);

}  // namespace weft::serve::constrain
