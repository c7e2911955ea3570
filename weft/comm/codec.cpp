#include "weft/comm/codec.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "weft/base/hash.h"
#include "weft/base/rng.h"
#include "weft/comm/codec_frame.h"
#include "weft/comm/codec_loops.h"

namespace weft::comm {
namespace {

constexpr std::string_view kNames[] = {"none",     "int8",     "fp8",     "top-k",
                                       "random-k", "powersgd", "lossless"};
constexpr std::uint32_t kMagnitude = 0x7fffffff;
// Gaps are written 7 bits a byte; a vector of 2^35 values would need a fifth... and a sixth.
constexpr std::uint64_t kMostGapBytes = 10;
constexpr int kZstdLevel = 1;

std::uint64_t blocks_of(std::uint64_t count, std::uint64_t block) {
  return (count + block - 1) / block;
}

void put(std::byte*& to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  to += bytes;
}

// ---- Top-K -----------------------------------------------------------------------------

// The bits of the kept-th largest magnitude, and how many values of just that size are kept.
struct Threshold {
  std::uint32_t bits;
  std::uint64_t ties;
};

// Calls body(i) for each i with |x[i]| bits >= least, ascending. Few are: 32 at a time are
// looked at together.
template <class Body>
void each_at_least(std::span<const float> x, std::uint32_t least, const Body& body) {
  const CodecLoops& loops = codec_loops();
  std::size_t i = 0;
  for (; i + 32 <= x.size(); i += 32) {
    if (!loops.reaches(x.data() + i, least)) continue;
    for (std::size_t j = i; j < i + 32; ++j) {
      const std::uint32_t u = std::bit_cast<std::uint32_t>(x[j]) & kMagnitude;
      if (u >= least) body(j, u);
    }
  }
  for (; i < x.size(); ++i) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x[i]) & kMagnitude;
    if (u >= least) body(i, u);
  }
}

Threshold find_threshold(std::span<const float> x, std::uint64_t kept,
                         std::vector<std::uint32_t>& candidates) {
  std::array<std::uint32_t, 4096> counts{};
  codec_loops().histogram(x.data(), x.size(), counts.data());
  std::uint32_t bin = 4095;
  std::uint64_t above = 0;
  while (above + counts[bin] < kept) above += counts[bin--];
  candidates.clear();
  each_at_least(x, bin << 19, [&](std::size_t, std::uint32_t u) {
    if (u >> 19 == bin) candidates.push_back(u);
  });
  const auto rank = static_cast<std::ptrdiff_t>(kept - above - 1);
  std::ranges::nth_element(candidates, candidates.begin() + rank, std::greater<>());
  const std::uint32_t bits = candidates[static_cast<std::size_t>(rank)];
  const auto larger = std::ranges::count_if(candidates, [&](auto u) { return u > bits; });
  return {bits, kept - above - static_cast<std::uint64_t>(larger)};
}

// Payload: u64 bytes of the gaps, the gaps, the values.
std::size_t encode_top_k(std::span<const float> x, std::uint64_t kept,
                         std::vector<std::uint32_t>& scratch, std::byte* payload) {
  Threshold threshold = find_threshold(x, kept, scratch);
  std::byte* gap = payload + 8;
  std::vector<float> values;
  values.reserve(kept);
  std::uint64_t next = 0;
  each_at_least(x, threshold.bits, [&](std::size_t i, std::uint32_t u) {
    if (u == threshold.bits && threshold.ties-- == 0) {
      threshold.ties = 0;
      return;
    }
    std::uint64_t distance = i - next;
    while (distance >= 0x80) {
      *gap++ = static_cast<std::byte>(distance | 0x80);
      distance >>= 7;
    }
    *gap++ = static_cast<std::byte>(distance);
    next = i + 1;
    values.push_back(x[i]);
  });
  const auto gap_bytes = static_cast<std::uint64_t>(gap - payload) - 8;
  std::memcpy(payload, &gap_bytes, sizeof gap_bytes);
  put(gap, values.data(), values.size() * sizeof(float));
  return static_cast<std::size_t>(gap - payload);
}

// ---- PowerSGD --------------------------------------------------------------------------

// Orthonormal columns of p [rows, rank], in order (modified Gram-Schmidt). A column that
// depends on those before becomes zero.
void orthonormalise(float* p, std::uint64_t rows, std::uint32_t rank) {
  for (std::uint32_t k = 0; k < rank; ++k) {
    const auto dot = [&](std::uint32_t a, std::uint32_t b) {
      double sum = 0;
      for (std::uint64_t i = 0; i < rows; ++i) sum += double{p[i * rank + a]} * p[i * rank + b];
      return sum;
    };
    const double before = dot(k, k);
    for (std::uint32_t j = 0; j < k; ++j) {
      const auto along = static_cast<float>(dot(j, k));
      for (std::uint64_t i = 0; i < rows; ++i) p[i * rank + k] -= along * p[i * rank + j];
    }
    const double left = dot(k, k);
    const auto scale = left > 1e-12 * before ? static_cast<float>(1.0 / std::sqrt(left)) : 0.0F;
    for (std::uint64_t i = 0; i < rows; ++i) p[i * rank + k] *= scale;
  }
}

// Payload: u64 rank, p [rows, rank], q [columns, rank]; x is near p q^T.
void encode_power(std::span<const float> x, const CodecSpec& spec, std::vector<float>& factor,
                  std::byte* payload) {
  const std::uint64_t rows = spec.rows, columns = x.size() / rows, rank = spec.rank;
  if (factor.size() != columns * rank) {
    factor.resize(columns * rank);
    Rng rng(spec.seed, RngUse::kInit, columns, spec.rank);
    for (float& q : factor) q = rng.next_normal();
  }
  std::vector<float> p(rows * rank);
  for (std::uint64_t i = 0; i < rows; ++i) {
    for (std::uint64_t c = 0; c < columns; ++c) {
      const float m = x[i * columns + c];
      for (std::uint64_t k = 0; k < rank; ++k) p[i * rank + k] += m * factor[c * rank + k];
    }
  }
  orthonormalise(p.data(), rows, spec.rank);
  std::ranges::fill(factor, 0.0F);
  for (std::uint64_t i = 0; i < rows; ++i) {
    for (std::uint64_t c = 0; c < columns; ++c) {
      const float m = x[i * columns + c];
      for (std::uint64_t k = 0; k < rank; ++k) factor[c * rank + k] += m * p[i * rank + k];
    }
  }
  put(payload, &rank, sizeof rank);
  put(payload, p.data(), p.size() * sizeof(float));
  put(payload, factor.data(), factor.size() * sizeof(float));
}

// ---- blocks, random-K, lossless ----------------------------------------------------------

// Payload: f32 scales, then bytes.
void encode_blocks(std::span<const float> x, const CodecSpec& spec, std::byte* payload) {
  const auto convert = spec.kind == CodecKind::kInt8 ? codec_loops().to_int8 : codec_loops().to_fp8;
  auto* bytes = reinterpret_cast<std::uint8_t*>(payload) + 4 * blocks_of(x.size(), spec.block);
  for (std::size_t at = 0; at < x.size(); at += spec.block, payload += 4) {
    const std::size_t n = std::min<std::size_t>(spec.block, x.size() - at);
    const float scale = convert(x.data() + at, n, bytes + at);
    std::memcpy(payload, &scale, sizeof scale);
  }
}

void encode_random(std::span<const float> x, const CodecSpec& spec, std::uint64_t step,
                   std::uint64_t kept, std::byte* payload) {
  put(payload, &spec.seed, sizeof spec.seed);
  put(payload, &step, sizeof step);
  for (std::uint64_t i = 0; i < kept; ++i) {
    put(payload, &x[random_place(spec.seed, step, i, kept, x.size())], sizeof(float));
  }
}

std::size_t encode_lossless(std::span<const float> x, std::byte* payload, std::size_t room) {
  std::vector<std::uint8_t> planes(x.size() * 4);
  codec_loops().split_bytes(x.data(), x.size(), planes.data());
  const std::size_t bytes = ZSTD_compress(payload, room, planes.data(), planes.size(), kZstdLevel);
  WEFT_CHECK(!ZSTD_isError(bytes), "zstd: {}", ZSTD_getErrorName(bytes));
  return bytes;
}

std::uint64_t payload_bound(const CodecSpec& spec, std::uint64_t count) {
  const std::uint64_t kept = kept_values(spec, count);
  switch (spec.kind) {
    case CodecKind::kNone:
      return 4 * count;
    case CodecKind::kInt8:
    case CodecKind::kFp8:
      return count + 4 * blocks_of(count, spec.block);
    case CodecKind::kTopK:
      return 8 +
             kept * (4 + std::min<std::uint64_t>(kMostGapBytes, (std::bit_width(count) + 6) / 7));
    case CodecKind::kRandomK:
      return 16 + 4 * kept;
    case CodecKind::kPowerSgd:
      return 8 + 4 * spec.rank * (spec.rows + (spec.rows == 0 ? 0 : count / spec.rows));
    case CodecKind::kLossless:
      return ZSTD_compressBound(4 * count);
  }
  return 0;
}

}  // namespace

std::string_view to_string(CodecKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

Result<CodecKind> codec_kind(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == std::end(kNames)) {
    return fail(ErrorCode::kInvalidArgument,
                "no codec is called '{}': none, int8, fp8, top-k, random-k, powersgd, lossless",
                name);
  }
  return static_cast<CodecKind>(found - std::begin(kNames));
}

Status check(const CodecSpec& spec, std::uint64_t count) {
  const std::string_view name = to_string(spec.kind);
  const bool blocks = spec.kind == CodecKind::kInt8 || spec.kind == CodecKind::kFp8;
  if (blocks && (spec.block == 0 || spec.block > 65536)) {
    return fail(ErrorCode::kInvalidArgument, "{}: block {}: 1 to 65,536 values", name, spec.block);
  }
  const bool sparse = spec.kind == CodecKind::kTopK || spec.kind == CodecKind::kRandomK;
  if (sparse && !(spec.fraction > 0 && spec.fraction <= 1)) {
    return fail(ErrorCode::kInvalidArgument, "{}: fraction {}: above 0, at most 1", name,
                spec.fraction);
  }
  if (spec.kind != CodecKind::kPowerSgd) return {};
  if (spec.rows == 0 || count == 0 || count % spec.rows != 0) {
    return fail(ErrorCode::kInvalidArgument, "{}: {} values are no matrix of {} rows", name, count,
                spec.rows);
  }
  if (spec.rank == 0 || spec.rank > std::min(spec.rows, count / spec.rows)) {
    return fail(ErrorCode::kInvalidArgument, "{}: rank {} of a matrix of {} by {}", name, spec.rank,
                spec.rows, count / spec.rows);
  }
  return {};
}

std::uint64_t kept_values(const CodecSpec& spec, std::uint64_t count) {
  if (count == 0) return 0;
  const double kept = std::ceil(spec.fraction * static_cast<double>(count));
  return std::clamp<std::uint64_t>(kept < 1 ? 1 : static_cast<std::uint64_t>(kept), 1, count);
}

std::uint64_t frame_bound(const CodecSpec& spec, std::uint64_t count) {
  return sizeof(FrameHeader) + payload_bound(spec, count);
}

std::uint64_t frame_check(const FrameHeader& header, std::span<const std::byte> payload) {
  const auto all = std::as_bytes(std::span(&header, 1));
  return xxh3_64(payload, xxh3_64(all.first(offsetof(FrameHeader, check))));
}

std::uint64_t random_place(std::uint64_t seed, std::uint64_t step, std::uint64_t i,
                           std::uint64_t kept, std::uint64_t count) {
  // Run i is [i * count / kept, (i + 1) * count / kept), in 128 bits.
  const auto border = [&](std::uint64_t run) {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(run) * count / kept);
  };
  const std::uint64_t first = border(i), width = border(i + 1) - first;
  const auto draw =
      philox4x32({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32),
                  static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32)},
                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t bits = std::uint64_t{draw[1]} << 32 | draw[0];
  return first + static_cast<std::uint64_t>(static_cast<unsigned __int128>(bits) * width >> 64);
}

Status Encoder::encode(std::span<const float> x, std::uint64_t step,
                       std::vector<std::byte>& frame) {
  const std::uint64_t count = x.size();
  if (auto fits = check(spec_, count); !fits) return fits;
  FrameHeader header{.magic = kFrameMagic,
                     .kind = static_cast<std::uint8_t>(spec_.kind),
                     .reserved = {},
                     .count = count,
                     .parameter = 0,
                     .payload = payload_bound(spec_, count),
                     .check = 0};
  frame.resize(sizeof header + header.payload);
  std::byte* payload = frame.data() + sizeof header;
  switch (spec_.kind) {
    case CodecKind::kNone:
      put(payload, x.data(), x.size_bytes());
      break;
    case CodecKind::kInt8:
    case CodecKind::kFp8:
      header.parameter = spec_.block;
      encode_blocks(x, spec_, payload);
      break;
    case CodecKind::kTopK:
      header.parameter = kept_values(spec_, count);
      header.payload = count == 0 ? 0 : encode_top_k(x, header.parameter, scratch_, payload);
      break;
    case CodecKind::kRandomK:
      header.parameter = kept_values(spec_, count);
      encode_random(x, spec_, step, header.parameter, payload);
      break;
    case CodecKind::kPowerSgd:
      header.parameter = spec_.rows;
      encode_power(x, spec_, factor_, payload);
      break;
    case CodecKind::kLossless:
      header.payload = encode_lossless(x, payload, header.payload);
      break;
  }
  frame.resize(sizeof header + header.payload);
  header.check = frame_check(header, std::span(frame).subspan(sizeof header));
  std::memcpy(frame.data(), &header, sizeof header);
  ++totals_.frames;
  totals_.values += count;
  totals_.raw_bytes += x.size_bytes();
  totals_.frame_bytes += frame.size();
  return {};
}

Status ErrorFeedback::encode(Encoder& encoder, std::span<const float> x, std::uint64_t step,
                             std::vector<std::byte>& frame) {
  if (residual_.empty()) {
    residual_.resize(x.size());
    sent_.resize(x.size());
  }
  if (residual_.size() != x.size()) {
    return fail(ErrorCode::kInvalidArgument, "error feedback of {} values was given {}",
                residual_.size(), x.size());
  }
  if (auto fits = check(encoder.spec(), x.size()); !fits) return fits;
  for (std::size_t i = 0; i < x.size(); ++i) residual_[i] += x[i];
  WEFT_TRY(encoder.encode(residual_, step, frame));
  WEFT_TRY(decode(frame, sent_));
  for (std::size_t i = 0; i < x.size(); ++i) residual_[i] -= sent_[i];
  return {};
}

}  // namespace weft::comm
