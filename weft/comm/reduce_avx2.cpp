#define WEFT_REDUCE_NAMESPACE avx2
#include "weft/comm/reduce_body.h"

namespace weft::comm {

Combine combine_avx2(DType type, ReduceOp op) { return avx2::choose(type, op); }
void stream_lines_avx2(void* to, const void* from, std::size_t bytes) {
  avx2::stream_lines(to, from, bytes);
}

}  // namespace weft::comm
