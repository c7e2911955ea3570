// The element loops, compiled once for each instruction set: the including file sets
// WEFT_REDUCE_NAMESPACE. Private to the reduce_*.cpp files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "weft/base/dtype.h"
#include "weft/comm/reduce.h"
#if defined(__AVX512F__) || defined(__F16C__)
#include <immintrin.h>
#endif

// The next loop's iterations do not depend on each other: `to` may be `a`.
#if defined(__clang__)
#define WEFT_INDEPENDENT  // it looks for overlaps at run time
#else
#define WEFT_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace weft::comm::WEFT_REDUCE_NAMESPACE {

struct Sum {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Product {
  template <class T>
  static T of(T a, T b) {
    if constexpr (sizeof(T) < sizeof(int)) {  // or the promotion to int might overflow
      return static_cast<T>(static_cast<unsigned>(a) * static_cast<unsigned>(b));
    } else {
      return static_cast<T>(a * b);
    }
  }
};
struct Min {
  template <class T>
  static T of(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  static T of(T a, T b) {
    return a < b ? b : a;
  }
};

template <class T, class Op>
void plain(void* to, const void* a, const void* b, std::size_t n) {
  auto* t = static_cast<T*>(to);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  WEFT_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) t[i] = Op::of(x[i], y[i]);
}

template <class Op>
void bf16(void* to, const void* a, const void* b, std::size_t n) {
  auto* t = static_cast<std::uint16_t*>(to);
  const auto* x = static_cast<const std::uint16_t*>(a);
  const auto* y = static_cast<const std::uint16_t*>(b);
  WEFT_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    t[i] = f32_to_bf16(Op::of(bf16_to_f32(x[i]), bf16_to_f32(y[i])));
  }
}

template <class Op>
void f16(void* to, const void* a, const void* b, std::size_t n) {
  auto* t = static_cast<std::uint16_t*>(to);
  const auto* x = static_cast<const std::uint16_t*>(a);
  const auto* y = static_cast<const std::uint16_t*>(b);
  std::size_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    alignas(32) float p[8], q[8];
    _mm256_store_ps(p, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
    _mm256_store_ps(q, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(y + i))));
    for (int k = 0; k < 8; ++k) p[k] = Op::of(p[k], q[k]);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(t + i),
                     _mm256_cvtps_ph(_mm256_load_ps(p), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < n; ++i) t[i] = f32_to_f16(Op::of(f16_to_f32(x[i]), f16_to_f32(y[i])));
}

// Sums and products of signed integers wrap, as the hardware's do: done unsigned.
template <class Op, bool kOrders>
Combine pick(DType type) {
  switch (type) {
    case DType::kF32:
      return plain<float, Op>;
    case DType::kF64:
      return plain<double, Op>;
    case DType::kBF16:
      return bf16<Op>;
    case DType::kF16:
      return f16<Op>;
    case DType::kU8:
      return plain<std::uint8_t, Op>;
    case DType::kI8:
      return kOrders ? plain<std::int8_t, Op> : plain<std::uint8_t, Op>;
    case DType::kI16:
      return kOrders ? plain<std::int16_t, Op> : plain<std::uint16_t, Op>;
    case DType::kI32:
      return kOrders ? plain<std::int32_t, Op> : plain<std::uint32_t, Op>;
    case DType::kI64:
      return kOrders ? plain<std::int64_t, Op> : plain<std::uint64_t, Op>;
    default:
      return nullptr;
  }
}

inline Combine choose(DType type, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return pick<Sum, false>(type);
    case ReduceOp::kProduct:
      return pick<Product, false>(type);
    case ReduceOp::kMin:
      return pick<Min, true>(type);
    case ReduceOp::kMax:
      return pick<Max, true>(type);
  }
  return nullptr;
}

// `to` is 64-byte aligned and `bytes` a multiple of 64.
inline void stream_lines(void* to, const void* from, std::size_t bytes) {
#if defined(__AVX512F__)
  auto* t = static_cast<char*>(to);
  const auto* f = static_cast<const char*>(from);
  for (std::size_t i = 0; i < bytes; i += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(t + i), _mm512_loadu_si512(f + i));
  }
  _mm_sfence();
#elif defined(__AVX2__)
  auto* t = static_cast<char*>(to);
  const auto* f = static_cast<const char*>(from);
  for (std::size_t i = 0; i < bytes; i += 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(t + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(f + i)));
  }
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace weft::comm::WEFT_REDUCE_NAMESPACE
