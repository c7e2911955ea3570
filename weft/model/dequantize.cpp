// Block formats of GGML to f32, with the operations and order of ggml-quants.c, so
// that values are equal to the bit.
#include <algorithm>
#include <cstring>

#include "weft/model/quant_blocks.h"
#include "weft/model/weights.h"

namespace weft::model {
namespace {

void dequantize_q8_0(const std::byte* in, float* out) {
  const auto* block = reinterpret_cast<const BlockQ8_0*>(in);
  const float d = f16_to_f32(block->d);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(block->qs[j]) * d;
}

void dequantize_q4_0(const std::byte* in, float* out) {
  const auto* block = reinterpret_cast<const BlockQ4_0*>(in);
  const float d = f16_to_f32(block->d);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((block->qs[j] & 0xf) - 8) * d;
    out[j + 16] = static_cast<float>((block->qs[j] >> 4) - 8) * d;
  }
}

void dequantize_q4_1(const std::byte* in, float* out) {
  const auto* block = reinterpret_cast<const BlockQ4_1*>(in);
  const float d = f16_to_f32(block->d);
  const float m = f16_to_f32(block->m);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(block->qs[j] & 0xf) * d + m;
    out[j + 16] = static_cast<float>(block->qs[j] >> 4) * d + m;
  }
}

void dequantize_q4_k(const std::byte* in, float* out) {
  const auto* block = reinterpret_cast<const BlockQ4_K*>(in);
  const float d = f16_to_f32(block->d);
  const float dmin = f16_to_f32(block->dmin);
  const std::uint8_t* q = block->qs;
  for (int group = 0; group < 8; group += 2, q += 32) {
    const ScaleMin low = scale_min_k4(group, block->scales);
    const ScaleMin high = scale_min_k4(group + 1, block->scales);
    const float d1 = d * low.scale, m1 = dmin * low.min;
    const float d2 = d * high.scale, m2 = dmin * high.min;
    for (int l = 0; l < 32; ++l) *out++ = d1 * static_cast<float>(q[l] & 0xf) - m1;
    for (int l = 0; l < 32; ++l) *out++ = d2 * static_cast<float>(q[l] >> 4) - m2;
  }
}

void dequantize_q5_k(const std::byte* in, float* out) {
  const auto* block = reinterpret_cast<const BlockQ5_K*>(in);
  const float d = f16_to_f32(block->d);
  const float dmin = f16_to_f32(block->dmin);
  const std::uint8_t* q = block->qs;
  for (int group = 0; group < 8; group += 2, q += 32) {
    const ScaleMin low = scale_min_k4(group, block->scales);
    const ScaleMin high = scale_min_k4(group + 1, block->scales);
    const float d1 = d * low.scale, m1 = dmin * low.min;
    const float d2 = d * high.scale, m2 = dmin * high.min;
    for (int l = 0; l < 32; ++l) {
      *out++ = d1 * static_cast<float>((q[l] & 0xf) + ((block->qh[l] >> group) & 1) * 16) - m1;
    }
    for (int l = 0; l < 32; ++l) {
      *out++ = d2 * static_cast<float>((q[l] >> 4) + ((block->qh[l] >> (group + 1)) & 1) * 16) - m2;
    }
  }
}

void dequantize_q6_k(const std::byte* in, float* out) {
  const auto* block = reinterpret_cast<const BlockQ6_K*>(in);
  const float d = f16_to_f32(block->d);
  const std::uint8_t* ql = block->ql;
  const std::uint8_t* qh = block->qh;
  const std::int8_t* scales = block->scales;
  for (int n = 0; n < 256; n += 128, out += 128, ql += 64, qh += 32, scales += 8) {
    for (int l = 0; l < 32; ++l) {
      const int is = l / 16;
      const int q1 = ((ql[l] & 0xf) | (((qh[l] >> 0) & 3) << 4)) - 32;
      const int q2 = ((ql[l + 32] & 0xf) | (((qh[l] >> 2) & 3) << 4)) - 32;
      const int q3 = ((ql[l] >> 4) | (((qh[l] >> 4) & 3) << 4)) - 32;
      const int q4 = ((ql[l + 32] >> 4) | (((qh[l] >> 6) & 3) << 4)) - 32;
      out[l] = d * static_cast<float>(scales[is]) * static_cast<float>(q1);
      out[l + 32] = d * static_cast<float>(scales[is + 2]) * static_cast<float>(q2);
      out[l + 64] = d * static_cast<float>(scales[is + 4]) * static_cast<float>(q3);
      out[l + 96] = d * static_cast<float>(scales[is + 6]) * static_cast<float>(q4);
    }
  }
}

template <class T, class Convert>
void convert_plain(const std::byte* in, std::int64_t n, float* out, Convert convert) {
  for (std::int64_t i = 0; i < n; ++i) {
    T value;  // a safetensors file may hold it unaligned
    std::memcpy(&value, in + i * static_cast<std::int64_t>(sizeof(T)), sizeof value);
    out[i] = convert(value);
  }
}

}  // namespace

Status dequantize_rows(const TensorView& view, std::int64_t begin, std::int64_t end, float* out) {
  const std::int64_t columns = view.columns();
  if (begin < 0 || end < begin || end > view.rows()) {
    return fail(ErrorCode::kOutOfRange, "rows {} to {} of a tensor of {} rows", begin, end,
                view.rows());
  }
  const std::int64_t n = (end - begin) * columns;
  if (!is_quantized(view.dtype)) {
    const std::byte* in = view.data + begin * columns * block_bytes(view.dtype);
    switch (view.dtype) {
      case DType::kF32:
        if (n > 0) std::memcpy(out, in, static_cast<std::size_t>(n) * sizeof(float));
        return {};
      case DType::kF16:
        convert_plain<std::uint16_t>(in, n, out, [](std::uint16_t h) { return f16_to_f32(h); });
        return {};
      case DType::kBF16:
        convert_plain<std::uint16_t>(in, n, out, [](std::uint16_t h) { return bf16_to_f32(h); });
        return {};
      case DType::kF64:
        convert_plain<double>(in, n, out, [](double d) { return static_cast<float>(d); });
        return {};
      default:
        return fail(ErrorCode::kUnsupported,
                    "a tensor of {} cannot be read as floating-point numbers",
                    to_string(view.dtype));
    }
  }
  void (*block)(const std::byte*, float*) = nullptr;
  switch (view.dtype) {
    case DType::kQ8_0:
      block = dequantize_q8_0;
      break;
    case DType::kQ4_0:
      block = dequantize_q4_0;
      break;
    case DType::kQ4_1:
      block = dequantize_q4_1;
      break;
    case DType::kQ4_K:
      block = dequantize_q4_k;
      break;
    case DType::kQ5_K:
      block = dequantize_q5_k;
      break;
    case DType::kQ6_K:
      block = dequantize_q6_k;
      break;
    default:
      return fail(ErrorCode::kInternal, "no dequantiser for {}", to_string(view.dtype));
  }
  const std::int64_t per_block = block_elements(view.dtype);
  const std::int64_t bytes = block_bytes(view.dtype);
  if (columns % per_block != 0) {
    return fail(ErrorCode::kCorrupt, "rows of {} elements are not whole blocks of {}", columns,
                to_string(view.dtype));
  }
  const std::byte* in = view.data + begin * columns / per_block * bytes;
  for (std::int64_t i = 0; i < n / per_block; ++i) block(in + i * bytes, out + i * per_block);
  return {};
}

Status dequantize(const TensorView& view, float* out) {
  return dequantize_rows(view, 0, view.rows(), out);
}

}  // namespace weft::model
