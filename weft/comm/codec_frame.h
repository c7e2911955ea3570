// The frame of codec.h: a header of 40 bytes and a payload. Private to codec*.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "weft/comm/codec.h"

namespace weft::comm {

// Little-endian, as all machines that Weft runs on.
struct FrameHeader {
  std::uint32_t magic;  // "WCF1"
  std::uint8_t kind;
  std::uint8_t reserved[3];  // 0
  std::uint64_t count;
  std::uint64_t parameter;  // block; values kept; rows
  std::uint64_t payload;    // bytes
  std::uint64_t check;      // XXH3 of the payload, seeded with that of the header before it
};
static_assert(sizeof(FrameHeader) == 40);
constexpr std::uint32_t kFrameMagic = 0x31464357;

std::uint64_t frame_check(const FrameHeader& header, std::span<const std::byte> payload);

// The place of run `i` of `kept` in `count` values that kRandomK sends.
std::uint64_t random_place(std::uint64_t seed, std::uint64_t step, std::uint64_t i,
                           std::uint64_t kept, std::uint64_t count);

// The magnitudes of FP8 E4M3 codes 0 to 127 (0x7f: NaN).
const float* fp8_values();

template <class T>
T load_as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace weft::comm
