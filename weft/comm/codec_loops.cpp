#include "weft/comm/codec_loops.h"

#include "weft/comm/cpu_level.h"

#define WEFT_CODEC_NAMESPACE baseline
#include "weft/comm/codec_body.h"

namespace weft::comm {

extern const CodecLoops kCodecLoopsAvx2, kCodecLoopsAvx512;

const CodecLoops& codec_loops() {
  switch (cpu_level()) {
    case CpuLevel::kAvx512:
      return kCodecLoopsAvx512;
    case CpuLevel::kAvx2:
      return kCodecLoopsAvx2;
    default:
      return baseline::kLoops;
  }
}

}  // namespace weft::comm
