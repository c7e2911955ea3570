#define WEFT_REDUCE_NAMESPACE avx512
#include "weft/comm/reduce_body.h"

namespace weft::comm {

Combine combine_avx512(DType type, ReduceOp op) { return avx512::choose(type, op); }
void stream_lines_avx512(void* to, const void* from, std::size_t bytes) {
  avx512::stream_lines(to, from, bytes);
}

}  // namespace weft::comm
