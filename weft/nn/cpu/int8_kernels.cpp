#include "weft/nn/cpu/int8_kernels.h"

#include <cmath>

namespace weft::nn {

void quantize_row_int8(const float* x, std::int64_t n, std::int8_t* q, float* scale,
                       std::int32_t* sums) {
  for (std::int64_t block = 0; block * 32 < n; ++block, x += 32, q += 32, sums += 2) {
    float top = 0.0F;
    bool finite = true;
    for (int i = 0; i < 32; ++i) {
      const float a = std::fabs(x[i]);
      finite = finite && a <= 3.40282347e+38F;
      top = a > top ? a : top;
    }
    scale[block] = finite ? top / 127.0F : __builtin_nanf("");
    const float inverse = finite && top >= 1.0e-36F ? 127.0F / top : 0.0F;
    sums[0] = sums[1] = 0;
    for (int i = 0; i < 32; ++i) {
      const int rounded = finite ? static_cast<int>(std::nearbyintf(x[i] * inverse)) : 0;
      q[i] = static_cast<std::int8_t>(rounded);
      sums[i / 16] += rounded;
    }
  }
}

}  // namespace weft::nn
