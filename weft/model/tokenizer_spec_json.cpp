#include "weft/base/json.h"
#include "weft/model/tokenizer_spec.h"

namespace weft::model {
Result<Json> spec_to_json(const TokenizerSpec&) {
  return fail(ErrorCode::kUnsupported, "tokenizer.json cannot be written yet");
}
}  // namespace weft::model
