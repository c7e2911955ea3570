// Which instructions the kernels use on this machine.
#pragma once

#include <string_view>

#include "weft/base/result.h"

namespace weft::nn {

// Ordered: each level includes those below it.
enum class Isa { kScalar, kAvx2, kAvx512, kAmx };
std::string_view to_string(Isa isa);

// The best level that processor and operating system allow (AMX needs the
// kernel's permission, asked for once), or the lower one named by WEFT_ISA
// (scalar, avx2, avx512, amx). Constant for the life of the process.
Isa cpu_isa();

// For tests: runs the rest of the process at `isa`; refused above the machine's.
Status set_isa(Isa isa);

}  // namespace weft::nn
