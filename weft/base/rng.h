// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC'11, "Parallel
// random numbers: as easy as 1, 2, 3"). A draw is a pure function of a key and
// logical coordinates, so it does not depend on threads, placement or order.
#pragma once

#include <array>
#include <cstdint>

namespace weft {

// One Philox4x32-10 block: 4 x 32 random bits of (counter, key).
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

// What a stream of draws is for. A new use takes a new value at the end, so
// that streams never collide.
enum class RngUse : std::uint32_t {
  kTest = 0,
  kInit,
  kData,
  kSample,
  kDropout,
  kShuffle,
  kTask,
  kFault,
};

// A stream: (seed, use, a, b) fix it, draws are numbered by `index`. Stateless
// access by index; `next_*` keep a counter. Copyable; not for concurrent use of
// one object.
class Rng {
 public:
  Rng(std::uint64_t seed, RngUse use, std::uint64_t a = 0, std::uint32_t b = 0);

  std::array<std::uint32_t, 4> block(std::uint64_t index) const;
  std::uint32_t bits(std::uint64_t index) const;     // draw number `index`
  float uniform(std::uint64_t index) const;          // [0, 1), 24 bits
  double uniform_double(std::uint64_t index) const;  // [0, 1), 53 bits, two to a block

  std::uint32_t next_bits() { return bits(next_++); }
  float next_uniform() { return uniform(next_++); }
  float next_normal();                            // standard normal, Box-Muller
  std::uint32_t next_below(std::uint32_t bound);  // uniform in [0, bound), unbiased

 private:
  std::array<std::uint32_t, 2> key_;  // Philox of (use, b) under the seed
  std::uint64_t a_;                   // the counter's upper half; the lower is the block index
  std::uint64_t next_ = 0;
};

}  // namespace weft
