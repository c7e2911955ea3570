#define WEFT_CODEC_NAMESPACE avx2
#include "weft/comm/codec_body.h"

namespace weft::comm {

extern const CodecLoops kCodecLoopsAvx2;
const CodecLoops kCodecLoopsAvx2 = avx2::kLoops;

}  // namespace weft::comm
