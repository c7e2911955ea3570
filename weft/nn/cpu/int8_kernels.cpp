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
    const float inverse = finite && top >= 1.0e-36F ? 127.0F / top : 0.0F;
    sums[0] = sums[1] = 0;
    int squares = 0;
    float lanes[16] = {};
    for (int i = 0; i < 32; ++i) {
      const float r = finite ? x[i] * inverse : 0.0F;
      const float rounded = std::nearbyintf(r);
      q[i] = static_cast<std::int8_t>(rounded);
      sums[i / 16] += q[i];
      squares += q[i] * q[i];
      lanes[i % 16] = i < 16 ? r * rounded : std::fma(r, rounded, lanes[i % 16]);
    }
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    scale[block] = !finite        ? __builtin_nanf("")
                   : squares == 0 ? 0.0F
                                  : top / 127.0F * (lanes[0] / static_cast<float>(squares));
  }
}

}  // namespace weft::nn
