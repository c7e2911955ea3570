#include "tests/fuzz/constraint_fuzz.h"
#include "weft/serve/constrain/constraint.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weft::test::fuzz_constraint(weft::serve::constrain::ConstraintSpec::Kind::kJsonSchema, data,
                              size);
  return 0;
}
