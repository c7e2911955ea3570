#include "weft/nn/matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/nn/levels.h"
#include "weft/model/weights.h"
#include "weft/nn/cpu/int8_kernels.h"
#include "weft/nn/isa.h"
#include "weft/nn/matmul_backward.h"

namespace weft::nn {
namespace {

class MatmulAtLevel : public AtLevel {};

struct Shape {
  std::int64_t m, out, in;
};
const Shape kShapes[] = {{1, 1, 1},
                         {1, 16, 32},
                         {1, 129, 64},
                         {2, 17, 33},
                         {3, 5, 7},
                         {5, 64, 576},
                         {15, 31, 37},
                         {16, 48, 96},
                         {17, 80, 40},
                         {31, 33, 65},
                         {33, 47, 31},
                         {48, 16, 64},
                         {65, 160, 96},
                         {67, 35, 100},
                         {130, 192, 64},
                         // Longer than a block of columns, of rows, and than a slab of rows.
                         {70, 40, 2100},
                         {66, 2080, 20},
                         {600, 34, 40},
                         {2100, 17, 20}};

TEST_P(MatmulAtLevel, ProductEqualsTheReferenceToTheBit) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  ThreadPool pool(2);
  for (Compute compute : {Compute::kF32, Compute::kBF16}) {
    for (const Shape& s : kShapes) {
      SCOPED_TRACE(testing::Message() << "compute " << int(compute) << " m " << s.m << " out "
                                      << s.out << " in " << s.in);
      const std::int64_t ldx = s.in + 3, ldy = s.out + 5;
      const auto weights = random_floats(random, s.out * s.in, 0.1F);
      const auto x = random_floats(random, s.m * ldx);
      const auto bias = random_floats(random, s.out);
      const auto w = pack_matrix({view_of(weights, s.out, s.in)}, compute, pool);
      ASSERT_TRUE(w);
      for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
        std::vector<float> y(static_cast<std::size_t>(s.m * ldy), -7.0F), expected = y;
        matmul(*w, x.data(), s.m, ldx, b, y.data(), ldy, pool);
        matmul_reference(*w, x.data(), s.m, ldx, b, expected.data(), ldy);
        EXPECT_SAME_BITS(y, expected);
      }
    }
  }
}

TEST_P(MatmulAtLevel, ARowsBitsDoNotDependOnTheBatchNorTheThreads) {
  std::mt19937 random(7);
  ThreadPool one(1), two(2);
  for (Compute compute : {Compute::kF32, Compute::kBF16}) {
    const std::int64_t out = 200, in = 96, m = 150;
    const auto weights = random_floats(random, out * in);
    const auto x = random_floats(random, m * in);
    const auto w = pack_matrix({view_of(weights, out, in)}, compute, one);
    ASSERT_TRUE(w);
    std::vector<float> whole(m * out), again(m * out);
    matmul(*w, x.data(), m, in, nullptr, whole.data(), out, one);
    matmul(*w, x.data(), m, in, nullptr, again.data(), out, two);
    EXPECT_SAME_BITS(whole, again);
    for (std::int64_t size : {1, 3, 16, 40, 70}) {
      for (std::int64_t row = 0; row < m; row += size) {
        matmul(*w, x.data() + row * in, std::min(size, m - row), in, nullptr,
               again.data() + row * out, out, two);
      }
      EXPECT_SAME_BITS(whole, again);
    }
  }
}

TEST_P(MatmulAtLevel, SpecialValuesAreTheReferences) {
  std::mt19937 random(11);
  ThreadPool pool(1);
  const std::int64_t m = 20, out = 40, in = 70;
  const float specials[] = {0.0F,
                            -0.0F,
                            1e-40F,
                            -3e-39F,
                            1.2e-38F,
                            3e38F,
                            -3e38F,
                            std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()};
  for (Compute compute : {Compute::kF32, Compute::kBF16}) {
    for (std::size_t few : {std::size_t{6}, std::size(specials)}) {
      auto weights = random_floats(random, out * in, 1e-18F);
      auto x = random_floats(random, m * in, 1e-19F);
      for (auto* v : {&weights, &x}) {
        for (std::size_t i = 0; i < v->size(); i += 1 + random() % 40) {
          (*v)[i] = specials[random() % few];
        }
      }
      const auto w = pack_matrix({view_of(weights, out, in)}, compute, pool);
      ASSERT_TRUE(w);
      std::vector<float> y(m * out), expected(m * out);
      matmul(*w, x.data(), m, in, nullptr, y.data(), out, pool);
      matmul_reference(*w, x.data(), m, in, nullptr, expected.data(), out);
      EXPECT_SAME_BITS(y, expected);
    }
  }
}

TEST_P(MatmulAtLevel, StackedMatricesAreOneMatrix) {
  std::mt19937 random(3);
  ThreadPool pool(2);
  const std::int64_t in = 64;
  const auto a = random_floats(random, 50 * in), b = random_floats(random, 7 * in);
  auto both = a;
  both.insert(both.end(), b.begin(), b.end());
  for (Compute compute : {Compute::kF32, Compute::kBF16}) {
    const auto stacked = pack_matrix({view_of(a, 50, in), view_of(b, 7, in)}, compute, pool);
    const auto single = pack_matrix({view_of(both, 57, in)}, compute, pool);
    ASSERT_TRUE(stacked && single);
    const auto x = random_floats(random, 9 * in);
    std::vector<float> y(9 * 57), z(9 * 57);
    matmul(*stacked, x.data(), 9, in, nullptr, y.data(), 57, pool);
    matmul(*single, x.data(), 9, in, nullptr, z.data(), 57, pool);
    EXPECT_SAME_BITS(y, z);
  }
}

TEST_P(MatmulAtLevel, InputGradientEqualsTheReferenceToTheBit) {
  std::mt19937 random(5);
  ThreadPool pool(2);
  for (Compute compute : {Compute::kF32, Compute::kBF16}) {
    for (const Shape& s : kShapes) {
      SCOPED_TRACE(testing::Message() << "compute " << int(compute) << " m " << s.m << " out "
                                      << s.out << " in " << s.in);
      const auto weights = random_floats(random, s.out * s.in, 0.1F);
      const auto dy = random_floats(random, s.m * s.out);
      const auto w = pack_transposed({view_of(weights, s.out, s.in)}, compute, pool);
      ASSERT_TRUE(w);
      EXPECT_EQ(w->out(), s.in);
      for (bool accumulate : {false, true}) {
        auto dx = random_floats(random, s.m * s.in), expected = dx;
        matmul_dx(*w, dy.data(), s.m, s.out, dx.data(), s.in, accumulate, pool);
        matmul_dx_reference(*w, dy.data(), s.m, s.out, expected.data(), s.in, accumulate);
        EXPECT_SAME_BITS(dx, expected);
      }
    }
  }
}

TEST_P(MatmulAtLevel, WeightGradientEqualsTheReferenceToTheBit) {
  std::mt19937 random(6);
  ThreadPool pool(2);
  for (Compute compute : {Compute::kF32, Compute::kBF16}) {
    for (const Shape& s : kShapes) {
      SCOPED_TRACE(testing::Message() << "compute " << int(compute) << " m " << s.m << " out "
                                      << s.out << " in " << s.in);
      std::vector<std::int64_t> segments;
      for (std::int64_t left = s.m; left > 0; left -= segments.back()) {
        segments.push_back(std::min<std::int64_t>(left, 1 + random() % 50));
      }
      const auto dy = random_floats(random, s.m * s.out), x = random_floats(random, s.m * s.in);
      auto dw = random_floats(random, s.out * s.in), expected = dw;
      matmul_dw(compute, {s.out, s.in}, segments, dy.data(), s.out, x.data(), s.in, dw.data(), s.in,
                pool);
      matmul_dw_reference(compute, {s.out, s.in}, segments, dy.data(), s.out, x.data(), s.in,
                          expected.data(), s.in);
      EXPECT_SAME_BITS(dw, expected);
    }
  }
}

TEST_P(MatmulAtLevel, WeightGradientDoesNotDependOnMicroBatches) {
  std::mt19937 random(8);
  ThreadPool one(1), two(2);
  const std::vector<std::int64_t> segments{5, 64, 33, 1, 40};
  const std::int64_t m = 143, out = 70, in = 50;
  const auto dy = random_floats(random, m * out), x = random_floats(random, m * in);
  for (Compute compute : {Compute::kF32, Compute::kBF16}) {
    std::vector<float> whole(out * in, 0.5F), parts = whole;
    matmul_dw(compute, {out, in}, segments, dy.data(), out, x.data(), in, whole.data(), in, one);
    std::int64_t row = 0;
    for (std::int64_t segment : segments) {
      matmul_dw(compute, {out, in}, {&segment, 1}, dy.data() + row * out, out, x.data() + row * in,
                in, parts.data(), in, two);
      row += segment;
    }
    EXPECT_SAME_BITS(whole, parts);
  }
}

TEST_P(MatmulAtLevel, BothGradientsAtOnceAndOfComputedRowsHaveTheSameBits) {
  std::mt19937 random(10);
  ThreadPool pool(2);
  const std::vector<std::int64_t> segments{5, 64, 33, 1, 40, 2000};
  const std::int64_t m = 2143, out = 70, in = 50;
  const auto weights = random_floats(random, out * in, 0.1F);
  const auto dy = random_floats(random, m * out), x = random_floats(random, m * in);
  const auto rows_of = [](const std::vector<float>& v, std::int64_t columns) {
    return Rows{nullptr, 0, [&v, columns](std::int64_t begin, std::int64_t end, float* buffer) {
                  std::copy(v.begin() + begin * columns, v.begin() + end * columns, buffer);
                  return static_cast<const float*>(buffer);
                }};
  };
  for (Compute compute : {Compute::kF32, Compute::kBF16}) {
    const auto w = pack_matrix({view_of(weights, out, in)}, compute, pool);
    const auto transposed = pack_transposed({view_of(weights, out, in)}, compute, pool);
    ASSERT_TRUE(w && transposed);
    std::vector<float> dw(out * in, 0.5F), dx(m * in), y(m * out);
    matmul_dw(compute, {out, in}, segments, dy.data(), out, x.data(), in, dw.data(), in, pool);
    matmul_dx(*transposed, dy.data(), m, out, dx.data(), in, false, pool);
    matmul(*w, x.data(), m, in, nullptr, y.data(), out, pool);
    for (const bool computed : {false, true}) {
      const Rows from_dy = computed ? rows_of(dy, out) : Rows{dy.data(), out, nullptr};
      const Rows from_x = computed ? rows_of(x, in) : Rows{x.data(), in, nullptr};
      std::vector<float> dw2(out * in, 0.5F), dx2(m * in), dx3(m * in), y2(m * out);
      matmul_backward(*transposed, segments, from_dy, from_x, dw2.data(), dx2.data(), pool);
      matmul_backward(*transposed, segments, from_dy, from_x, nullptr, dx3.data(), pool);
      matmul(*w, from_x, m, nullptr, y2.data(), out, pool);
      EXPECT_SAME_BITS(dw, dw2);
      EXPECT_SAME_BITS(dx, dx2);
      EXPECT_SAME_BITS(dx, dx3);
      EXPECT_SAME_BITS(y, y2);
    }
  }
}

TEST_P(MatmulAtLevel, RepackEqualsAFreshPack) {
  std::mt19937 random(9);
  ThreadPool pool(2);
  for (Compute compute : {Compute::kF32, Compute::kBF16}) {
    for (std::int64_t in : {64, 37, 16}) {
      const auto zeros = std::vector<float>(75 * in);
      const auto a = random_floats(random, 40 * in), b = random_floats(random, 35 * in);
      const std::vector<TensorView> masters{view_of(a, 40, in), view_of(b, 35, in)};
      auto forward = pack_matrix({view_of(zeros, 75, in)}, compute, pool);
      auto transposed = pack_transposed({view_of(zeros, 75, in)}, compute, pool);
      ASSERT_TRUE(forward && transposed);
      repack(masters, *forward, *transposed, pool);
      const auto x = random_floats(random, 5 * in), dy = random_floats(random, 5 * 75);
      std::vector<float> y(5 * 75), y2 = y, dx(5 * in), dx2 = dx;
      matmul(*forward, x.data(), 5, in, nullptr, y.data(), 75, pool);
      matmul(*pack_matrix(masters, compute, pool), x.data(), 5, in, nullptr, y2.data(), 75, pool);
      matmul_dx(*transposed, dy.data(), 5, 75, dx.data(), in, false, pool);
      matmul_dx(*pack_transposed(masters, compute, pool), dy.data(), 5, 75, dx2.data(), in, false,
                pool);
      EXPECT_SAME_BITS(y, y2);
      EXPECT_SAME_BITS(dx, dx2);
    }
  }
}

// Rows of a quantised type, from random blocks with sane scales.
std::vector<std::byte> random_blocks(std::mt19937& random, DType type, std::int64_t rows,
                                     std::int64_t columns) {
  const std::int64_t size = block_bytes(type);
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(rows * columns / block_elements(type) * size));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  const auto put = [&](std::size_t at) {
    const float value = std::uniform_real_distribution<float>(-0.02F, 0.02F)(random);
    const std::uint16_t h = f32_to_f16(value);
    std::memcpy(bytes.data() + at, &h, sizeof h);
  };
  for (std::size_t at = 0; at < bytes.size(); at += static_cast<std::size_t>(size)) {
    put(at + (type == DType::kQ6_K ? 208 : 0));
    if (type == DType::kQ4_1 || type == DType::kQ4_K || type == DType::kQ5_K) put(at + 2);
  }
  return bytes;
}

constexpr DType kQuantised[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0,
                                DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

TEST_P(MatmulAtLevel, QuantisedWeightsMeanTheirDequantisedValues) {
  std::mt19937 random(12);
  ThreadPool pool(2);
  for (DType type : kQuantised) {
    for (std::int64_t out : {1, 16, 45, 100}) {
      SCOPED_TRACE(testing::Message() << to_string(type) << " out " << out);
      const std::int64_t in = 2 * block_elements(type);
      const auto blocks = random_blocks(random, type, out, in);
      const TensorView view{blocks.data(), type, {out, in}};
      std::vector<float> plain(static_cast<std::size_t>(out * in));
      ASSERT_TRUE(model::dequantize(view, plain.data()));
      for (Compute compute : {Compute::kF32, Compute::kBF16}) {
        const auto w = pack_matrix({view}, compute, pool);
        const auto dense = pack_matrix({view_of(plain, out, in)}, compute, pool);
        ASSERT_TRUE(w && dense);
        for (std::int64_t m : {1, 5, 16, 17, 33, 64, 70}) {
          const auto x = random_floats(random, m * in), bias = random_floats(random, out);
          std::vector<float> y(static_cast<std::size_t>(m * out)), z = y;
          matmul(*w, x.data(), m, in, bias.data(), y.data(), out, pool);
          matmul(*dense, x.data(), m, in, bias.data(), z.data(), out, pool);
          EXPECT_SAME_BITS(y, z);
          if (m == 5) {
            matmul_reference(*w, x.data(), m, in, bias.data(), z.data(), out);
            EXPECT_SAME_BITS(y, z);
          }
        }
        std::vector<float> row(static_cast<std::size_t>(in)), dense_row = row;
        matrix_row(*w, out - 1, row.data());
        matrix_row(*dense, out - 1, dense_row.data());
        EXPECT_SAME_BITS(row, dense_row);
      }
    }
  }
}

TEST_P(MatmulAtLevel, Int8EqualsTheReferenceAndIsNearTheProduct) {
  std::mt19937 random(13);
  ThreadPool pool(2);
  for (DType type : kQuantised) {
    SCOPED_TRACE(to_string(type));
    const std::int64_t out = 45, in = 2 * block_elements(type), m = 7;
    const auto blocks = random_blocks(random, type, out, in);
    const TensorView view{blocks.data(), type, {out, in}};
    const auto w = pack_matrix({view}, Compute::kInt8, pool);
    ASSERT_TRUE(w);
    std::vector<float> plain(static_cast<std::size_t>(out * in)), row(in);
    ASSERT_TRUE(model::dequantize(view, plain.data()));
    matrix_row(*w, 3, row.data());
    EXPECT_SAME_BITS(row, std::vector<float>(plain.begin() + 3 * in, plain.begin() + 4 * in));
    auto x = random_floats(random, m * in);
    std::vector<float> y(m * out), z = y;
    matmul(*w, x.data(), m, in, nullptr, y.data(), out, pool);
    for (std::int64_t r = 0; r < m; ++r) {
      for (std::int64_t o = 0; o < out; ++o) {
        double sum = 0.0, magnitude = 0.0;
        for (std::int64_t i = 0; i < in; ++i) {
          const double product = double{x[r * in + i]} * plain[o * in + i];
          sum += product, magnitude += product * product;
        }
        EXPECT_NEAR(y[r * out + o], sum, 0.05 * std::sqrt(magnitude) + 1e-6);
      }
    }
    x[3] = std::numeric_limits<float>::infinity();
    x[in + 5] = std::numeric_limits<float>::quiet_NaN();
    std::fill(x.begin() + 2 * in, x.begin() + 3 * in, 1e-39F);
    matmul(*w, x.data(), m, in, nullptr, y.data(), out, pool);
    matmul_reference(*w, x.data(), m, in, nullptr, z.data(), out);
    EXPECT_SAME_BITS(y, z);
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[out]) && !std::isnan(y[2 * out]));
  }
}

TEST_P(MatmulAtLevel, Int8EqualsTheReferenceForEveryNumberOfRows) {
  std::mt19937 random(14);
  ThreadPool one(1), two(2);
  for (DType type : kQuantised) {
    for (std::int64_t out : {13, 80}) {
      SCOPED_TRACE(testing::Message() << to_string(type) << " out " << out);
      const std::int64_t in = block_elements(type) == 32 ? 160 : 512;
      const auto blocks = random_blocks(random, type, out, in);
      const auto w = pack_matrix({{blocks.data(), type, {out, in}}}, Compute::kInt8, one);
      ASSERT_TRUE(w);
      const std::int64_t most = 70, ldx = in + 3, ldy = out + 5;
      const auto x = random_floats(random, most * ldx), bias = random_floats(random, out);
      std::vector<float> expected(static_cast<std::size_t>(most * ldy), -7.0F);
      matmul_reference(*w, x.data(), most, ldx, bias.data(), expected.data(), ldy);
      for (std::int64_t m : {1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 70}) {
        std::vector<float> y(static_cast<std::size_t>(most * ldy), -7.0F);
        matmul(*w, x.data(), m, ldx, bias.data(), y.data(), ldy, m % 2 == 0 ? one : two);
        std::vector<float> first(expected.begin(), expected.begin() + m * ldy);
        first.resize(y.size(), -7.0F);
        EXPECT_SAME_BITS(y, first);
      }
    }
  }
}

TEST(Matmul, Int8ScalesFitTheRoundedValuesBest) {
  std::mt19937 random(15);
  ThreadPool pool(1);
  const auto x = random_floats(random, 3200, 2.0F);
  std::vector<std::int8_t> q(x.size());
  std::vector<float> scale(100);
  std::vector<std::int32_t> sums(200);
  quantize_row_int8(x.data(), 3200, q.data(), scale.data(), sums.data());
  const auto error = [&](std::size_t block, double s) {
    double sum = 0.0;
    for (std::size_t i = block * 32; i < block * 32 + 32; ++i) sum += std::pow(x[i] - s * q[i], 2);
    return sum;
  };
  for (std::size_t block = 0; block < 100; ++block) {
    const double s = scale[block], least = error(block, s);
    EXPECT_LE(least, error(block, s * 1.0001));
    EXPECT_LE(least, error(block, s * 0.9999));
  }
}

TEST(Matmul, F32IsTheSameAtEveryLevel) {
  std::mt19937 random(4);
  ThreadPool pool(2);
  const std::int64_t m = 37, out = 90, in = 61;
  const auto weights = random_floats(random, out * in), x = random_floats(random, m * in);
  const auto w = pack_matrix({view_of(weights, out, in)}, Compute::kF32, pool);
  const Isa before = cpu_isa();
  std::vector<float> first;
  for (Isa isa : levels()) {
    ASSERT_TRUE(set_isa(isa));
    std::vector<float> y(m * out);
    matmul(*w, x.data(), m, in, nullptr, y.data(), out, pool);
    if (first.empty()) first = y;
    EXPECT_SAME_BITS(first, y);
  }
  ASSERT_TRUE(set_isa(before));
}

TEST(Matmul, IsNearTheDoubleResult) {
  std::mt19937 random(4);
  ThreadPool pool(2);
  const std::int64_t m = 9, out = 30, in = 300;
  const auto weights = random_floats(random, out * in), x = random_floats(random, m * in);
  for (const auto& [compute, bound] : {std::pair{Compute::kF32, 1e-4}, {Compute::kBF16, 0.3}}) {
    const auto w = pack_matrix({view_of(weights, out, in)}, compute, pool);
    std::vector<float> y(m * out);
    matmul(*w, x.data(), m, in, nullptr, y.data(), out, pool);
    for (std::int64_t r = 0; r < m; ++r) {
      for (std::int64_t o = 0; o < out; ++o) {
        double sum = 0.0;
        for (std::int64_t i = 0; i < in; ++i) sum += double{x[r * in + i]} * weights[o * in + i];
        EXPECT_NEAR(y[r * out + o], sum, bound);
      }
    }
  }
}

TEST(Matmul, RefusesWhatItCannotPack) {
  ThreadPool pool(1);
  const std::vector<float> a(12);
  EXPECT_FALSE(pack_matrix({}, Compute::kF32, pool));
  EXPECT_FALSE(pack_matrix({view_of(a, 3, 4), view_of(a, 4, 3)}, Compute::kF32, pool));
  EXPECT_FALSE(pack_matrix({view_of(a, 3, 4)}, Compute::kInt8, pool));
}

TEST(Matmul, NoRowsIsNoWork) {
  ThreadPool pool(1);
  const std::vector<float> a(12, 1.0F);
  const auto w = pack_matrix({view_of(a, 3, 4)}, Compute::kBF16, pool);
  matmul(*w, nullptr, 0, 4, nullptr, nullptr, 3, pool);
}

INSTANTIATE_TEST_SUITE_P(Matmul, MatmulAtLevel, testing::ValuesIn(levels()),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace weft::nn
