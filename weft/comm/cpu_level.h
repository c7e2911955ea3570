// Which instructions the element loops of this room use here.
#pragma once

namespace weft::comm {

enum class CpuLevel { kBaseline, kAvx2, kAvx512 };
// The best that the processor has; constant for the life of the process.
CpuLevel cpu_level();

}  // namespace weft::comm
