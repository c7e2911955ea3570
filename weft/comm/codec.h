// Codecs: vectors of f32 made smaller for a slow link, as self-describing frames
// (docs/formats/codec-frame.md). All but kNone and kLossless lose something; ErrorFeedback
// adds what was lost to the next vector, so that nothing is lost for ever.
//
// A frame depends on the values, the specification and the step alone: the same bytes at
// every instruction level. The limit of the block codecs is reading x: 4 bytes a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weft/base/result.h"

namespace weft::comm {

enum class CodecKind : std::uint8_t {
  kNone = 0,
  // Blocks of `block` values as int8 with one f32 scale, max |x| / 127; rounded to even.
  kInt8 = 1,
  // The same as FP8 E4M3 (OCP 8-bit floating point), scale max |x| / 448.
  kFp8 = 2,
  // The `fraction` of values largest in magnitude (of equal ones the first), with the gaps
  // between their places. Aji & Heafield 2017; Lin et al. 2018 (deep gradient compression).
  kTopK = 3,
  // One value, chosen by (seed, step), of each of `fraction` * count equal runs: no places
  // are sent. Stratified form of random-K (Stich et al. 2018).
  kRandomK = 4,
  // A matrix of `rows` rows as two factors of `rank` columns, one power iteration a step,
  // started from the last step's (Vogels et al. 2019). Needs rows * columns == count.
  kPowerSgd = 5,
  // Nothing lost: the four bytes of the values apart from each other, then zstd.
  kLossless = 6,
};
std::string_view to_string(CodecKind kind);
Result<CodecKind> codec_kind(std::string_view name);

struct CodecSpec {
  CodecKind kind = CodecKind::kNone;
  std::uint32_t block = 128;  // kInt8, kFp8: 1 to 65,536
  double fraction = 0.01;  // kTopK, kRandomK: of the values that are sent, in (0, 1]; at least one
  std::uint64_t rows = 0;  // kPowerSgd
  std::uint32_t rank = 4;  // kPowerSgd: at most rows and columns
  std::uint64_t seed = 0;  // kRandomK, kPowerSgd

  bool operator==(const CodecSpec&) const = default;
};
// What is wrong with a specification for vectors of `count` values.
Status check(const CodecSpec& spec, std::uint64_t count);
// The values that kTopK and kRandomK keep.
std::uint64_t kept_values(const CodecSpec& spec, std::uint64_t count);
// The most bytes a frame of `count` values takes; exact for kNone, kInt8, kFp8, kRandomK,
// kPowerSgd.
std::uint64_t frame_bound(const CodecSpec& spec, std::uint64_t count);

// Bytes on the wire, exactly: frames with their headers.
struct CodecTotals {
  std::uint64_t frames = 0, values = 0, raw_bytes = 0, frame_bytes = 0;
  double ratio() const {
    return frame_bytes == 0 ? 1.0
                            : static_cast<double>(raw_bytes) / static_cast<double>(frame_bytes);
  }
};

// Makes frames of vectors of one length. Keeps kPowerSgd's factor and its buffers between
// calls; one thread at a time.
class Encoder {
 public:
  explicit Encoder(const CodecSpec& spec) : spec_(spec) {}

  // A frame of x in `frame`, whose memory is reused. kInvalidArgument: the specification
  // does not fit; `frame` and the state are then untouched.
  Status encode(std::span<const float> x, std::uint64_t step, std::vector<std::byte>& frame);
  const CodecSpec& spec() const { return spec_; }
  const CodecTotals& totals() const { return totals_; }

 private:
  CodecSpec spec_;
  CodecTotals totals_;
  std::vector<float> factor_;           // kPowerSgd: [columns, rank] of the last step
  std::vector<std::uint32_t> scratch_;  // kTopK: bits of candidates
};

struct FrameInfo {
  CodecKind kind = CodecKind::kNone;
  std::uint64_t count = 0;        // values
  std::uint64_t frame_bytes = 0;  // with the header
};
// Reads the header alone: kCorrupt where it is not one or the bytes are too few.
Result<FrameInfo> inspect(std::span<const std::byte> frame);
// Writes all values of `out`. kCorrupt names what is wrong with the frame, kInvalidArgument
// a length of `out` that is not the frame's; `out` may then hold anything.
Status decode(std::span<const std::byte> frame, std::span<float> out);

// Sends x plus what earlier frames have lost of theirs (Seide et al. 2014; Karimireddy et
// al. 2019). One for each vector; one thread at a time.
class ErrorFeedback {
 public:
  // As Encoder::encode. The length may not change.
  Status encode(Encoder& encoder, std::span<const float> x, std::uint64_t step,
                std::vector<std::byte>& frame);
  std::span<const float> residual() const { return residual_; }

 private:
  std::vector<float> residual_, sent_;
};

}  // namespace weft::comm
