// Running kernels at each instruction level of this machine, and comparing bits.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "weft/base/tensor_view.h"
#include "weft/nn/isa.h"

namespace weft::nn {

inline std::vector<Isa> levels() {
  std::vector<Isa> result;
  for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    const Isa before = cpu_isa();
    if (set_isa(isa)) result.push_back(isa);
    (void)set_isa(before);
  }
  return result;
}

class AtLevel : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    before_ = cpu_isa();
    ASSERT_TRUE(set_isa(GetParam()));
  }
  void TearDown() override { ASSERT_TRUE(set_isa(before_)); }

 private:
  Isa before_ = Isa::kScalar;
};

inline std::vector<float> random_floats(std::mt19937& random, std::int64_t n, float scale = 1.0F) {
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> v(static_cast<std::size_t>(n));
  for (float& x : v) x = normal(random);
  return v;
}

inline TensorView view_of(const std::vector<float>& v, std::int64_t rows, std::int64_t columns) {
  return {reinterpret_cast<const std::byte*>(v.data()), DType::kF32, {rows, columns}};
}

// Bits, with all NaNs alike.
inline std::vector<std::uint32_t> bits(const std::vector<float>& v) {
  std::vector<std::uint32_t> r;
  for (float x : v) r.push_back(std::isnan(x) ? 0x7fc00000U : std::bit_cast<std::uint32_t>(x));
  return r;
}

#define EXPECT_SAME_BITS(a, b)                                                                    \
  do {                                                                                            \
    const auto bits_a = bits(a), bits_b = bits(b);                                                \
    ASSERT_EQ(bits_a.size(), bits_b.size());                                                      \
    std::size_t differ = 0, where = 0;                                                            \
    for (std::size_t i = 0; i < bits_a.size(); ++i) {                                             \
      if (bits_a[i] != bits_b[i] && differ++ == 0) where = i;                                     \
    }                                                                                             \
    EXPECT_EQ(differ, 0U) << "first at " << where << ": " << (a)[where] << " and " << (b)[where]; \
  } while (false)

}  // namespace weft::nn
