// The element loops of the codecs, compiled for each instruction set; all give the same
// bytes. Private to codec*.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::comm {

struct CodecLoops {
  // One block: its scale, and n bytes. A block with a NaN or an infinity has scale NaN.
  float (*to_int8)(const float* x, std::size_t n, std::uint8_t* to);
  float (*to_fp8)(const float* x, std::size_t n, std::uint8_t* to);
  void (*from_int8)(const std::uint8_t* from, std::size_t n, float scale, float* x);
  // Adds to counts[|x| bits >> 19] (4,096 of them).
  void (*histogram)(const float* x, std::size_t n, std::uint32_t* counts);
  // Whether the bits of some |x[i]|, i < 32, are at least `least`.
  bool (*reaches)(const float* x, std::uint32_t least);
  // to[4][n] = the bytes of n values apart, or back.
  void (*split_bytes)(const float* x, std::size_t n, std::uint8_t* to);
  void (*join_bytes)(const std::uint8_t* from, std::size_t n, float* x);
};
const CodecLoops& codec_loops();

}  // namespace weft::comm
