#define WEFT_CODEC_NAMESPACE avx512
#include "weft/comm/codec_body.h"

namespace weft::comm {

extern const CodecLoops kCodecLoopsAvx512;
const CodecLoops kCodecLoopsAvx512 = avx512::kLoops;

}  // namespace weft::comm
