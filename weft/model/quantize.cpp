// f32 to GGML's types with the rounding of ggml-quants.c's reference functions
// (quantize_row_*_ref), operation for operation, so that blocks are byte-equal.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "weft/model/quant_blocks.h"
#include "weft/model/weights.h"

namespace weft::model {
namespace {

// Below this a group of a K type counts as zero (ggml-quants.c, GROUP_MAX_EPS).
constexpr float kGroupEpsilon = 1e-15F;

// Rounds half to even by the 1.5 * 2^23 trick; |value| must be below 2^22.
int nearest_int(float value) {
  const auto bits = __builtin_bit_cast(std::int32_t, value + 12582912.0F);
  return (bits & 0x007fffff) - 0x00400000;
}

// 1/d, and 0 where that is not a number a block can use (d zero or subnormal).
float inverse(float d) {
  const float id = d != 0.0F ? 1.0F / d : 0.0F;
  return std::isfinite(id) ? id : 0.0F;
}

std::uint8_t nibble(float value) {
  return static_cast<std::uint8_t>(std::min<int>(15, static_cast<std::int8_t>(value)));
}

bool infinite_f16(std::uint16_t h) { return (h & 0x7c00U) == 0x7c00U; }

// Each returns false when a scale does not fit f16.
bool quantize_q8_0(const float* x, std::byte* out) {
  float amax = 0.0F;
  for (int j = 0; j < 32; ++j) amax = std::max(amax, std::fabs(x[j]));
  const float d = amax / 127.0F;
  const float id = inverse(d);
  BlockQ8_0 block;
  block.d = f32_to_f16(d);
  for (int j = 0; j < 32; ++j) block.qs[j] = static_cast<std::int8_t>(std::round(x[j] * id));
  std::memcpy(out, &block, sizeof block);
  return !infinite_f16(block.d);
}

bool quantize_q4_0(const float* x, std::byte* out) {
  float amax = 0.0F;
  float max = 0.0F;
  for (int j = 0; j < 32; ++j) {
    if (amax < std::fabs(x[j])) {
      amax = std::fabs(x[j]);
      max = x[j];
    }
  }
  const float d = max / -8.0F;
  const float id = inverse(d);
  BlockQ4_0 block;
  block.d = f32_to_f16(d);
  for (int j = 0; j < 16; ++j) {
    block.qs[j] =
        static_cast<std::uint8_t>(nibble(x[j] * id + 8.5F) | nibble(x[j + 16] * id + 8.5F) << 4);
  }
  std::memcpy(out, &block, sizeof block);
  return !infinite_f16(block.d);
}

bool quantize_q4_1(const float* x, std::byte* out) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  const float min = *low;
  const float d = (*high - min) / 15.0F;
  const float id = inverse(d);
  BlockQ4_1 block;
  block.d = f32_to_f16(d);
  block.m = f32_to_f16(min);
  for (int j = 0; j < 16; ++j) {
    block.qs[j] = static_cast<std::uint8_t>(nibble((x[j] - min) * id + 0.5F) |
                                            nibble((x[j + 16] - min) * id + 0.5F) << 4);
  }
  std::memcpy(out, &block, sizeof block);
  return !infinite_f16(block.d) && !infinite_f16(block.m);
}

// How many candidate scales a K type tries: (rmin + rdelta * step + levels) / range.
struct ScaleSearch {
  int levels;
  float rmin, rdelta;
  int steps;
};

// The scale and min (returned positive) of one group of 32 that minimise the
// weighted squared error, and the levels in `best` (make_qkx2_quants).
struct GroupFit {
  float scale, min;
};
GroupFit fit_group(const float* x, const float* weights, ScaleSearch search, std::uint8_t* best) {
  constexpr int n = 32;
  float min = x[0], max = x[0];
  float sum_w = weights[0], sum_x = sum_w * x[0];
  for (int i = 1; i < n; ++i) {
    if (x[i] < min) min = x[i];
    if (x[i] > max) max = x[i];
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  if (min > 0) min = 0;
  if (max == min) {
    std::fill_n(best, n, std::uint8_t{0});
    return {0.0F, -min};
  }
  const auto levels = static_cast<float>(search.levels);
  const auto level = [&](float iscale, float value, float from) {
    return std::clamp(nearest_int(iscale * (value - from)), 0, search.levels);
  };
  float iscale = levels / (max - min);
  float scale = 1.0F / iscale;
  float best_error = 0.0F;
  for (int i = 0; i < n; ++i) {
    best[i] = static_cast<std::uint8_t>(level(iscale, x[i], min));
    float diff = scale * static_cast<float>(best[i]) + min - x[i];
    diff = diff * diff;
    best_error += weights[i] * diff;
  }
  // The grid keeps the first minimum; `min` may change with each better fit.
  std::array<std::uint8_t, n> candidate;
  for (int step = 0; step <= search.steps; ++step) {
    iscale = (search.rmin + search.rdelta * static_cast<float>(step) + levels) / (max - min);
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (int i = 0; i < n; ++i) {
      const int l = level(iscale, x[i], min);
      candidate[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(l);
      const auto fl = static_cast<float>(l);
      sum_l += weights[i] * fl;
      sum_l2 += weights[i] * fl * fl;
      sum_xl += weights[i] * fl * x[i];
    }
    const float determinant = sum_w * sum_l2 - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    float this_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    float this_min = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    if (this_min > 0) {
      this_min = 0;
      this_scale = sum_xl / sum_l2;
    }
    float error = 0;
    for (int i = 0; i < n; ++i) {
      float diff =
          this_scale * static_cast<float>(candidate[static_cast<std::size_t>(i)]) + this_min - x[i];
      diff = diff * diff;
      error += weights[i] * diff;
    }
    if (error < best_error) {
      std::copy_n(candidate.data(), n, best);
      best_error = error;
      scale = this_scale;
      min = this_min;
    }
  }
  return {scale, -min};
}

// The part that Q4_K and Q5_K share: fits 8 groups, packs 6-bit scales and mins, and
// requantises the levels with the packed values.
bool quantize_k_groups(const float* x, ScaleSearch search, std::uint16_t& d_out,
                       std::uint16_t& dmin_out, std::uint8_t* scales_out, std::uint8_t* levels) {
  std::array<GroupFit, 8> fits;
  float max_scale = 0, max_min = 0;
  for (int j = 0; j < 8; ++j) {
    const float* group = x + 32 * j;
    float sum_x2 = 0;
    for (int l = 0; l < 32; ++l) sum_x2 += group[l] * group[l];
    const float average = std::sqrt(sum_x2 / 32);
    std::array<float, 32> weights;
    for (int l = 0; l < 32; ++l)
      weights[static_cast<std::size_t>(l)] = average + std::fabs(group[l]);
    GroupFit& fit = fits[static_cast<std::size_t>(j)];
    fit = fit_group(group, weights.data(), search, levels + 32 * j);
    max_scale = std::max(max_scale, fit.scale);
    max_min = std::max(max_min, fit.min);
  }
  const float inv_scale = max_scale > 0 ? 63.0F / max_scale : 0.0F;
  const float inv_min = max_min > 0 ? 63.0F / max_min : 0.0F;
  std::fill_n(scales_out, 12, std::uint8_t{0});
  for (int j = 0; j < 8; ++j) {
    const GroupFit& fit = fits[static_cast<std::size_t>(j)];
    const int ls = std::min<int>(63, static_cast<std::uint8_t>(nearest_int(inv_scale * fit.scale)));
    const int lm = std::min<int>(63, static_cast<std::uint8_t>(nearest_int(inv_min * fit.min)));
    if (j < 4) {
      scales_out[j] = static_cast<std::uint8_t>(ls);
      scales_out[j + 4] = static_cast<std::uint8_t>(lm);
    } else {
      scales_out[j + 4] = static_cast<std::uint8_t>((ls & 0xf) | ((lm & 0xf) << 4));
      scales_out[j - 4] = static_cast<std::uint8_t>(scales_out[j - 4] | ((ls >> 4) << 6));
      scales_out[j] = static_cast<std::uint8_t>(scales_out[j] | ((lm >> 4) << 6));
    }
  }
  d_out = f32_to_f16(max_scale / 63.0F);
  dmin_out = f32_to_f16(max_min / 63.0F);
  for (int j = 0; j < 8; ++j) {
    const ScaleMin packed = scale_min_k4(j, scales_out);
    const float d = f16_to_f32(d_out) * packed.scale;
    if (d == 0.0F) continue;
    const float dm = f16_to_f32(dmin_out) * packed.min;
    for (int i = 0; i < 32; ++i) {
      const int l = nearest_int((x[32 * j + i] + dm) / d);
      levels[32 * j + i] = static_cast<std::uint8_t>(std::clamp(l, 0, search.levels));
    }
  }
  return !infinite_f16(d_out) && !infinite_f16(dmin_out);
}

bool quantize_q4_k(const float* x, std::byte* out) {
  BlockQ4_K block;
  std::array<std::uint8_t, 256> levels;
  const bool fits =
      quantize_k_groups(x, {15, -1.0F, 0.1F, 20}, block.d, block.dmin, block.scales, levels.data());
  for (std::size_t j = 0, q = 0; j < 256; j += 64, q += 32) {
    for (std::size_t l = 0; l < 32; ++l) {
      block.qs[q + l] = static_cast<std::uint8_t>(levels[j + l] | (levels[j + l + 32] << 4));
    }
  }
  std::memcpy(out, &block, sizeof block);
  return fits;
}

bool quantize_q5_k(const float* x, std::byte* out) {
  BlockQ5_K block;
  std::array<std::uint8_t, 256> levels;
  const bool fits =
      quantize_k_groups(x, {31, -0.5F, 0.1F, 15}, block.d, block.dmin, block.scales, levels.data());
  std::memset(block.qh, 0, sizeof block.qh);
  for (std::size_t group = 0, q = 0; group < 8; group += 2, q += 32) {
    for (std::size_t l = 0; l < 32; ++l) {
      const unsigned low = levels[group * 32 + l];
      const unsigned high = levels[group * 32 + 32 + l];
      block.qs[q + l] = static_cast<std::uint8_t>((low & 0xfU) | ((high & 0xfU) << 4));
      block.qh[l] = static_cast<std::uint8_t>(block.qh[l] | ((low >> 4) << group) |
                                              ((high >> 4) << (group + 1)));
    }
  }
  std::memcpy(out, &block, sizeof block);
  return fits;
}

// The scale of one group of 16 by weighted least squares with weights x^2
// (make_qx_quants with rmse_type 1), and its levels.
float fit_group_16(const float* x, std::uint8_t* levels) {
  constexpr int n = 16, nmax = 32;
  float max = 0, amax = 0;
  for (int i = 0; i < n; ++i) {
    const float ax = std::fabs(x[i]);
    if (ax > amax) {
      amax = ax;
      max = x[i];
    }
  }
  if (amax < kGroupEpsilon) {
    std::fill_n(levels, n, std::uint8_t{0});
    return 0.0F;
  }
  const auto level = [](float value) { return std::clamp(nearest_int(value), -nmax, nmax - 1); };
  float scale = 0, best = 0;
  const auto attempt = [&](float iscale, bool first) {
    float sum_lx = 0, sum_l2 = 0;
    for (int i = 0; i < n; ++i) {
      const auto l = static_cast<float>(level(iscale * x[i]));
      const float w = x[i] * x[i];
      sum_lx += w * x[i] * l;
      sum_l2 += w * l * l;
    }
    if (!first && !(sum_l2 > 0 && sum_lx * sum_lx > best * sum_l2)) return;
    for (int i = 0; i < n; ++i) levels[i] = static_cast<std::uint8_t>(nmax + level(iscale * x[i]));
    scale = sum_l2 != 0.0F ? sum_lx / sum_l2 : 0.0F;
    best = scale * sum_lx;
  };
  attempt(-static_cast<float>(nmax) / max, true);
  for (int step = -9; step <= 9; ++step) {
    if (step != 0)
      attempt(-(static_cast<float>(nmax) + 0.1F * static_cast<float>(step)) / max, false);
  }
  return scale;
}

bool quantize_q6_k(const float* x, std::byte* out) {
  BlockQ6_K block;
  std::array<std::uint8_t, 256> levels;
  std::array<float, 16> scales;
  float max_scale = 0, max_abs = 0;
  for (std::size_t j = 0; j < 16; ++j) {
    scales[j] = fit_group_16(x + 16 * j, levels.data() + 16 * j);
    if (std::fabs(scales[j]) > max_abs) {
      max_abs = std::fabs(scales[j]);
      max_scale = scales[j];
    }
  }
  if (max_abs < kGroupEpsilon) {
    std::memset(out, 0, sizeof block);
    return true;
  }
  const float iscale = -128.0F / max_scale;
  block.d = f32_to_f16(1 / iscale);
  for (std::size_t j = 0; j < 16; ++j) {
    block.scales[j] = static_cast<std::int8_t>(std::min(127, nearest_int(iscale * scales[j])));
  }
  for (std::size_t j = 0; j < 16; ++j) {
    const float d = f16_to_f32(block.d) * static_cast<float>(block.scales[j]);
    if (d == 0.0F) continue;
    for (std::size_t i = 0; i < 16; ++i) {
      levels[16 * j + i] =
          static_cast<std::uint8_t>(std::clamp(nearest_int(x[16 * j + i] / d), -32, 31) + 32);
    }
  }
  for (std::size_t n = 0; n < 2; ++n) {
    const std::uint8_t* at = levels.data() + 128 * n;
    for (std::size_t l = 0; l < 32; ++l) {
      const unsigned a = at[l], b = at[l + 32], c = at[l + 64], d = at[l + 96];
      block.ql[64 * n + l] = static_cast<std::uint8_t>((a & 0xfU) | ((c & 0xfU) << 4));
      block.ql[64 * n + l + 32] = static_cast<std::uint8_t>((b & 0xfU) | ((d & 0xfU) << 4));
      block.qh[32 * n + l] =
          static_cast<std::uint8_t>((a >> 4) | ((b >> 4) << 2) | ((c >> 4) << 4) | ((d >> 4) << 6));
    }
  }
  std::memcpy(out, &block, sizeof block);
  return !infinite_f16(block.d);
}

}  // namespace

Status quantize_rows(DType type, const float* rows_in, std::int64_t rows, std::int64_t columns,
                     std::byte* out) {
  WEFT_ASSIGN(const std::int64_t size, tensor_bytes(type, rows, columns));
  const std::int64_t n = rows * columns;
  for (std::int64_t i = 0; i < n; ++i) {
    if (is_quantized(type) && !std::isfinite(rows_in[i])) {
      return fail(ErrorCode::kInvalidArgument, "row {} holds {} at column {}; {} has no such value",
                  i / columns, rows_in[i], i % columns, to_string(type));
    }
  }
  bool (*block)(const float*, std::byte*) = nullptr;
  switch (type) {
    case DType::kF32:
      if (n > 0) std::memcpy(out, rows_in, static_cast<std::size_t>(size));
      return {};
    case DType::kF16:
    case DType::kBF16:
      for (std::int64_t i = 0; i < n; ++i) {
        const std::uint16_t h =
            type == DType::kF16 ? f32_to_f16(rows_in[i]) : f32_to_bf16(rows_in[i]);
        std::memcpy(out + i * 2, &h, sizeof h);
      }
      return {};
    case DType::kQ8_0:
      block = quantize_q8_0;
      break;
    case DType::kQ4_0:
      block = quantize_q4_0;
      break;
    case DType::kQ4_1:
      block = quantize_q4_1;
      break;
    case DType::kQ4_K:
      block = quantize_q4_k;
      break;
    case DType::kQ5_K:
      block = quantize_q5_k;
      break;
    case DType::kQ6_K:
      block = quantize_q6_k;
      break;
    default:
      return fail(ErrorCode::kUnsupported, "numbers cannot be written as {}", to_string(type));
  }
  const std::int64_t per_block = block_elements(type);
  const std::int64_t bytes = block_bytes(type);
  for (std::int64_t i = 0; i < n / per_block; ++i) {
    if (!block(rows_in + i * per_block, out + i * bytes)) {
      return fail(ErrorCode::kOutOfRange, "row {} holds values too large for the f16 scales of {}",
                  i * per_block / columns, to_string(type));
    }
  }
  return {};
}

}  // namespace weft::model
