#include "weft/base/rng.h"

#include <cmath>

#include "weft/base/result.h"

namespace weft {
namespace {

constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

// Natural logarithm of u in (0, 1] and cosine of 2 pi u, from additions and
// products alone: the C library picks other code on other CPUs, and a normal
// draw must have the same bits everywhere. Errors are below 1e-14, far under
// the float that the result is rounded to.
double log_unit(double u) {
  int exponent = 0;
  double m = std::frexp(u, &exponent);  // exact
  if (m < 0.70710678118654752440) {
    m *= 2;
    --exponent;
  }
  const double z = (m - 1) / (m + 1);  // |z| <= 0.172: log m = 2 atanh z
  const double z2 = z * z;
  double series = 0;
  for (int k = 19; k >= 1; k -= 2) series = series * z2 + 1.0 / k;
  return exponent * 0.693147180559945309417 + 2 * z * series;
}

double cos_turns(double u) {
  u -= std::floor(u);
  if (u > 0.5) u = 1 - u;
  const bool negate = u > 0.25;
  if (negate) u = 0.5 - u;      // u in [0, 1/4]
  const bool swap = u > 0.125;  // there cos x = sin(pi/2 - x)
  const double x = 6.28318530717958647693 * (swap ? 0.25 - u : u);
  const double x2 = x * x;
  double term = 0;
  for (int k = 16; k >= 2; k -= 2) {  // Taylor, nested
    const double d = swap ? k * (k + 1.0) : k * (k - 1.0);
    term = -x2 / d * (1 + term);
  }
  const double value = swap ? x * (1 + term) : 1 + term;
  return negate ? -value : value;
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {high(p1) ^ counter[1] ^ key[0], low(p1), high(p0) ^ counter[3] ^ key[1], low(p0)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

Rng::Rng(std::uint64_t seed, RngUse use, std::uint64_t a, std::uint32_t b) : a_(a) {
  const auto derived =
      philox4x32({static_cast<std::uint32_t>(use), b, 0, 0}, {low(seed), high(seed)});
  key_ = {derived[0], derived[1]};
}

std::array<std::uint32_t, 4> Rng::block(std::uint64_t index) const {
  return philox4x32({low(index), high(index), low(a_), high(a_)}, key_);
}

std::uint32_t Rng::bits(std::uint64_t index) const { return block(index / 4)[index % 4]; }

float Rng::uniform(std::uint64_t index) const {
  return static_cast<float>(bits(index) >> 8) * 0x1p-24F;
}

double Rng::uniform_double(std::uint64_t index) const {
  const auto words = block(index / 2);
  const std::size_t first = index % 2 * 2;
  const std::uint64_t wide = std::uint64_t{words[first]} << 32 | words[first + 1];
  return static_cast<double>(wide >> 11) * 0x1p-53;
}

float Rng::next_normal() {
  // 1 - u lies in (0, 1], so the logarithm is finite.
  const double u = 1.0 - static_cast<double>(next_bits()) * 0x1p-32;
  const double turn = static_cast<double>(next_bits()) * 0x1p-32;
  return static_cast<float>(std::sqrt(-2 * log_unit(u)) * cos_turns(turn));
}

std::uint32_t Rng::next_below(std::uint32_t bound) {
  WEFT_CHECK(bound > 0, "next_below(0)");
  // Lemire, "Fast random integer generation in an interval" (2019), section 4.
  std::uint64_t product = std::uint64_t{next_bits()} * bound;
  if (low(product) < bound) {
    const std::uint32_t threshold = (0U - bound) % bound;
    while (low(product) < threshold) product = std::uint64_t{next_bits()} * bound;
  }
  return high(product);
}

}  // namespace weft
