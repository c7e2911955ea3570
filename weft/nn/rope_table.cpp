// Rotary angles, computed in double and rounded once. Scalings after the
// published definitions: linear (Chen et al. 2023, arXiv:2306.15595), dynamic
// NTK, Llama 3.1's by wavelength, YaRN (Peng et al. 2023, arXiv:2309.00071).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "weft/base/result.h"
#include "weft/nn/ops.h"

namespace weft::nn {
namespace {

using model::RopeConfig;
using model::RopeScaling;

double llama3_frequency(const RopeConfig& rope, double frequency) {
  const double original = static_cast<double>(rope.original_max_position);
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  if (wavelength < original / rope.high_freq_factor) return frequency;
  const double smooth = (original / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

// The pair whose angle turns `rotations` times over the original context.
double yarn_pair(const RopeConfig& rope, double dim, double rotations) {
  return dim *
         std::log(static_cast<double>(rope.original_max_position) /
                  (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(rope.theta));
}

std::vector<double> frequencies(const RopeConfig& rope, std::int64_t rotary_dim,
                                std::int64_t positions) {
  const auto dim = static_cast<double>(rotary_dim);
  const std::int64_t half = rotary_dim / 2;
  double theta = rope.theta;
  if (rope.scaling == RopeScaling::kDynamic && positions > rope.original_max_position &&
      rope.original_max_position > 0) {
    const double growth = rope.factor * static_cast<double>(positions) /
                              static_cast<double>(rope.original_max_position) -
                          (rope.factor - 1.0);
    theta *= std::pow(growth, dim / (dim - 2.0));
  }
  double low = 0.0, high = 0.0;
  if (rope.scaling == RopeScaling::kYarn) {
    low = std::max(std::floor(yarn_pair(rope, dim, rope.beta_fast)), 0.0);
    high = std::min(std::ceil(yarn_pair(rope, dim, rope.beta_slow)), dim - 1.0);
    if (low == high) high += 0.001;
  }
  std::vector<double> out(static_cast<std::size_t>(half));
  for (std::int64_t i = 0; i < half; ++i) {
    double f = std::pow(theta, -2.0 * static_cast<double>(i) / dim);
    switch (rope.scaling) {
      case RopeScaling::kNone:
      case RopeScaling::kDynamic:
        break;
      case RopeScaling::kLinear:
        f /= rope.factor;
        break;
      case RopeScaling::kLlama3:
        f = llama3_frequency(rope, f);
        break;
      case RopeScaling::kYarn: {
        const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        f = f / rope.factor * ramp + f * (1.0 - ramp);
        break;
      }
    }
    if (!rope.frequency_factors.empty()) {
      f /= static_cast<double>(rope.frequency_factors[static_cast<std::size_t>(i)]);
    }
    out[static_cast<std::size_t>(i)] = f;
  }
  return out;
}

}  // namespace

std::int64_t RopeTable::positions() const {
  return rotary_dim < 2 ? 0 : static_cast<std::int64_t>(cos.size()) / (rotary_dim / 2);
}

RopeTable make_rope_table(const model::ModelConfig& config, std::int64_t positions) {
  const RopeConfig& rope = config.rope;
  RopeTable table;
  table.rotary_dim = rope.rotary_dim > 0 ? rope.rotary_dim : config.head_dim;
  const std::int64_t half = table.rotary_dim / 2;
  WEFT_CHECK(rope.frequency_factors.empty() || std::ssize(rope.frequency_factors) == half,
             "{} frequency factors for {} pairs", rope.frequency_factors.size(), half);
  const std::vector<double> frequency = frequencies(rope, table.rotary_dim, positions);
  double magnitude = 1.0;
  if (rope.scaling == RopeScaling::kYarn) {
    magnitude = rope.attention_factor > 0.0 ? rope.attention_factor
                : rope.factor > 1.0         ? 0.1 * std::log(rope.factor) + 1.0
                                            : 1.0;
  }
  table.cos.reserve(static_cast<std::size_t>(positions * half));
  table.sin.reserve(static_cast<std::size_t>(positions * half));
  for (std::int64_t position = 0; position < positions; ++position) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequency[static_cast<std::size_t>(i)];
      table.cos.push_back(static_cast<float>(std::cos(angle) * magnitude));
      table.sin.push_back(static_cast<float>(std::sin(angle) * magnitude));
    }
  }
  return table;
}

}  // namespace weft::nn
