#include <zstd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "weft/comm/codec.h"
#include "weft/comm/codec_frame.h"
#include "weft/comm/codec_loops.h"

namespace weft::comm {
namespace {

// A frame whose header and check are right; its payload may still lie.
struct Frame {
  FrameHeader header;
  std::span<const std::byte> payload;
};

template <class... Args>
std::unexpected<Error> corrupt(fmt::format_string<Args...> format, Args&&... args) {
  return fail(ErrorCode::kCorrupt, "codec frame: {}",
              fmt::format(format, std::forward<Args>(args)...));
}

Result<Frame> open(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(FrameHeader)) {
    return corrupt("{} bytes are fewer than its header's {}", bytes.size(), sizeof(FrameHeader));
  }
  Frame frame{load_as<FrameHeader>(bytes.data()), bytes.subspan(sizeof(FrameHeader))};
  const FrameHeader& h = frame.header;
  if (h.magic != kFrameMagic) return corrupt("starts with {:#010x}", h.magic);
  if (h.kind > static_cast<std::uint8_t>(CodecKind::kLossless)) {
    return corrupt("codec number {}", h.kind);
  }
  if (h.payload != frame.payload.size()) {
    return corrupt("{} bytes of payload, {} in the header", frame.payload.size(), h.payload);
  }
  return frame;
}

Status expect_bytes(const Frame& frame, std::uint64_t bytes) {
  if (frame.payload.size() == bytes) return {};
  return corrupt("{} of {} values in {} bytes, not {}",
                 to_string(static_cast<CodecKind>(frame.header.kind)), frame.header.count,
                 frame.payload.size(), bytes);
}

Status decode_blocks(const Frame& frame, std::span<float> out) {
  const std::uint64_t block = frame.header.parameter;
  if (block == 0 || block > 65536) return corrupt("block {}", block);
  const std::uint64_t blocks = (out.size() + block - 1) / block;
  WEFT_TRY(expect_bytes(frame, out.size() + 4 * blocks));
  const std::byte* scales = frame.payload.data();
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(scales + 4 * blocks);
  const bool int8 = frame.header.kind == static_cast<std::uint8_t>(CodecKind::kInt8);
  for (std::uint64_t at = 0; at < out.size(); at += block, scales += 4) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(block, out.size() - at));
    const auto scale = load_as<float>(scales);
    if (int8) {
      codec_loops().from_int8(bytes + at, n, scale, &out[at]);
      continue;
    }
    float values[256];
    for (int i = 0; i < 128; ++i) {
      values[i] = fp8_values()[i] * scale;
      values[128 + i] = -values[i];
    }
    for (std::size_t i = 0; i < n; ++i) out[at + i] = values[bytes[at + i]];
  }
  return {};
}

Status decode_top_k(const Frame& frame, std::span<float> out) {
  std::ranges::fill(out, 0.0F);
  const std::uint64_t kept = frame.header.parameter;
  if (out.empty() && kept == 0 && frame.payload.empty()) return {};
  if (frame.payload.size() < 8) return corrupt("no length of the gaps");
  const auto gap_bytes = load_as<std::uint64_t>(frame.payload.data());
  const std::uint64_t room = frame.payload.size() - 8;
  if (gap_bytes > room || kept > out.size() || room - gap_bytes != 4 * kept) {
    return corrupt("{} bytes of gaps and {} values in {} bytes", gap_bytes, kept, room);
  }
  const std::byte* gap = frame.payload.data() + 8;
  const std::byte* const end = gap + gap_bytes;
  const std::byte* value = end;
  std::uint64_t next = 0;
  for (std::uint64_t i = 0; i < kept; ++i, value += 4) {
    std::uint64_t distance = 0;
    for (int shift = 0;; shift += 7) {
      if (gap == end || shift > 56) return corrupt("gap {} does not end", i);
      const auto byte = static_cast<std::uint64_t>(*gap++);
      distance |= (byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    if (distance >= out.size() - next) {
      return corrupt("value {} lies past the {} values", i, out.size());
    }
    next += distance;
    out[next++] = load_as<float>(value);
  }
  if (gap != end) return corrupt("{} bytes after the last gap", end - gap);
  return {};
}

Status decode_random(const Frame& frame, std::span<float> out) {
  const std::uint64_t kept = frame.header.parameter;
  if (kept > out.size()) return corrupt("{} values kept of {}", kept, out.size());
  WEFT_TRY(expect_bytes(frame, 16 + 4 * kept));
  std::ranges::fill(out, 0.0F);
  const auto seed = load_as<std::uint64_t>(frame.payload.data());
  const auto step = load_as<std::uint64_t>(frame.payload.data() + 8);
  for (std::uint64_t i = 0; i < kept; ++i) {
    out[random_place(seed, step, i, kept, out.size())] =
        load_as<float>(frame.payload.data() + 16 + 4 * i);
  }
  return {};
}

Status decode_power(const Frame& frame, std::span<float> out) {
  const std::uint64_t rows = frame.header.parameter;
  if (rows == 0 || out.empty() || out.size() % rows != 0 || frame.payload.size() < 8) {
    return corrupt("{} values are no matrix of {} rows", out.size(), rows);
  }
  const std::uint64_t columns = out.size() / rows;
  const auto rank = load_as<std::uint64_t>(frame.payload.data());
  if (rank == 0 || rank > std::min(rows, columns)) return corrupt("rank {}", rank);
  WEFT_TRY(expect_bytes(frame, 8 + 4 * rank * (rows + columns)));
  std::vector<float> factors(rank * (rows + columns));
  std::memcpy(factors.data(), frame.payload.data() + 8, factors.size() * sizeof(float));
  const float *p = factors.data(), *q = p + rows * rank;
  for (std::uint64_t i = 0; i < rows; ++i) {
    for (std::uint64_t c = 0; c < columns; ++c) {
      float sum = 0.0F;
      for (std::uint64_t k = 0; k < rank; ++k) sum += p[i * rank + k] * q[c * rank + k];
      out[i * columns + c] = sum;
    }
  }
  return {};
}

Status decode_lossless(const Frame& frame, std::span<float> out) {
  std::vector<std::uint8_t> planes(out.size() * 4);
  const std::size_t bytes =
      ZSTD_decompress(planes.data(), planes.size(), frame.payload.data(), frame.payload.size());
  if (ZSTD_isError(bytes)) return corrupt("zstd: {}", ZSTD_getErrorName(bytes));
  if (bytes != planes.size()) return corrupt("{} bytes of {}", bytes, planes.size());
  codec_loops().join_bytes(planes.data(), out.size(), out.data());
  return {};
}

}  // namespace

const float* fp8_values() {
  static const std::array<float, 128> values = [] {
    std::array<float, 128> v{};
    for (int code = 0; code < 128; ++code) {
      const int exponent = code >> 3, mantissa = code & 7;
      v[static_cast<std::size_t>(code)] =
          exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    }
    v[127] = std::numeric_limits<float>::quiet_NaN();
    return v;
  }();
  return values.data();
}

Result<FrameInfo> inspect(std::span<const std::byte> bytes) {
  WEFT_ASSIGN(const Frame frame, open(bytes));
  return FrameInfo{static_cast<CodecKind>(frame.header.kind), frame.header.count, bytes.size()};
}

Status decode(std::span<const std::byte> bytes, std::span<float> out) {
  WEFT_ASSIGN(const Frame frame, open(bytes));
  const FrameHeader& h = frame.header;
  if (h.count != out.size()) {
    return fail(ErrorCode::kInvalidArgument, "a frame of {} values for {}", h.count, out.size());
  }
  if (frame_check(h, frame.payload) != h.check) return corrupt("its check differs");
  switch (static_cast<CodecKind>(h.kind)) {
    case CodecKind::kNone:
      WEFT_TRY(expect_bytes(frame, out.size_bytes()));
      if (!out.empty()) std::memcpy(out.data(), frame.payload.data(), out.size_bytes());
      return {};
    case CodecKind::kInt8:
    case CodecKind::kFp8:
      return decode_blocks(frame, out);
    case CodecKind::kTopK:
      return decode_top_k(frame, out);
    case CodecKind::kRandomK:
      return decode_random(frame, out);
    case CodecKind::kPowerSgd:
      return decode_power(frame, out);
    case CodecKind::kLossless:
      return decode_lossless(frame, out);
  }
  return corrupt("codec number {}", h.kind);
}

}  // namespace weft::comm
