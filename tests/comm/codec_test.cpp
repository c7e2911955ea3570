#include "weft/comm/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "weft/base/hash.h"
#include "weft/base/rng.h"
#include "weft/comm/codec_policy.h"

namespace weft::comm {
namespace {

std::vector<float> normals(std::size_t n, std::uint64_t seed, float scale = 1.0F) {
  Rng rng(seed, RngUse::kTest);
  std::vector<float> x(n);
  for (float& v : x) v = scale * rng.next_normal();
  return x;
}

CodecSpec spec_of(CodecKind kind, std::size_t n) {
  CodecSpec spec{.kind = kind, .block = 32, .fraction = 0.05, .seed = 7};
  spec.rank = 1;
  spec.rows = 1;
  for (std::uint64_t rows = 2; rows * rows <= n; ++rows) {
    if (n % rows == 0) spec.rows = rows;
  }
  return spec;
}

std::vector<float> through(const CodecSpec& spec, const std::vector<float>& x,
                           std::uint64_t step = 0) {
  Encoder encoder(spec);
  std::vector<std::byte> frame;
  EXPECT_TRUE(encoder.encode(x, step, frame));
  EXPECT_LE(frame.size(), frame_bound(spec, x.size()));
  EXPECT_EQ(encoder.totals().frame_bytes, frame.size());
  std::vector<float> out(x.size(), -1.0F);
  const Status status = decode(frame, out);
  EXPECT_TRUE(status) << (status ? "" : status.error().message);
  return out;
}

class EveryCodec : public testing::TestWithParam<CodecKind> {};

TEST_P(EveryCodec, RoundTripsVectorsOfEveryLength) {
  for (const std::size_t n : {0, 1, 2, 31, 32, 33, 127, 1000, 4099}) {
    if (GetParam() == CodecKind::kPowerSgd && n == 0) continue;  // no matrix
    const CodecSpec spec = spec_of(GetParam(), n);
    const auto x = normals(n, n);
    const auto y = through(spec, x);
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < n; ++i) {
      error += double{x[i] - y[i]} * (x[i] - y[i]);
      norm += double{x[i]} * x[i];
      if (GetParam() == CodecKind::kNone || GetParam() == CodecKind::kLossless) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(x[i]), std::bit_cast<std::uint32_t>(y[i]));
      }
    }
    EXPECT_LE(error, norm * 1.0001) << n;  // a contraction: what error feedback needs
    if (GetParam() == CodecKind::kInt8) {
      EXPECT_LE(error, norm * 1e-3);
    }
    if (GetParam() == CodecKind::kFp8) {
      EXPECT_LE(error, norm * 3e-3);
    }
  }
}

TEST_P(EveryCodec, RefusesFramesThatWereChangedOrCut) {
  const std::size_t n = 256;
  Encoder encoder(spec_of(GetParam(), n));
  std::vector<std::byte> frame;
  ASSERT_TRUE(encoder.encode(normals(n, 1), 3, frame));
  std::vector<float> out(n);
  for (std::size_t i = 0; i < frame.size(); ++i) {
    auto changed = frame;
    changed[i] ^= std::byte{0x10};
    EXPECT_FALSE(decode(changed, out)) << "byte " << i;
    EXPECT_FALSE(decode(std::span(frame).first(i), out)) << i << " bytes";
  }
  std::vector<float> shorter(n - 1);
  EXPECT_EQ(decode(frame, shorter).error().code, ErrorCode::kInvalidArgument);
}

// Gradient descent on f(x) = sum a_i (x_i - b_i)^2 / 2 with compressed gradients.
TEST_P(EveryCodec, ErrorFeedbackConvergesOnAQuadratic) {
  const std::size_t n = 64;
  CodecSpec spec = spec_of(GetParam(), n);
  spec.fraction = 0.1;
  const auto target = normals(n, 2);
  std::vector<float> x(n), gradient(n), sent(n);
  Encoder encoder(spec);
  ErrorFeedback feedback;
  std::vector<std::byte> frame;
  for (std::uint64_t step = 0; step < 1500; ++step) {
    for (std::size_t i = 0; i < n; ++i) {
      gradient[i] = (0.5F + static_cast<float>(i) / static_cast<float>(n)) * (x[i] - target[i]);
    }
    ASSERT_TRUE(feedback.encode(encoder, gradient, step, frame));
    ASSERT_TRUE(decode(frame, sent));
    for (std::size_t i = 0; i < n; ++i) x[i] -= 0.05F * sent[i];
  }
  for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(x[i], target[i], 1e-3) << i;
}

// A network of two layers learns a function of two others; its loss with compressed
// gradients ends near that with whole ones.
double loss_after(const CodecSpec* spec) {
  constexpr std::size_t kIn = 8, kHidden = 16, kRows = 64;
  const auto data = normals(kRows * kIn, 11), teacher = normals(kIn, 12);
  auto w1 = normals(kHidden * kIn, 13, 0.3F), w2 = normals(kHidden, 14, 0.3F);
  std::vector<float> gradient(kHidden * kIn + kHidden), sent(gradient.size());
  std::vector<std::byte> frame;
  Encoder encoder(spec == nullptr ? CodecSpec{} : *spec);
  ErrorFeedback feedback;
  double loss = 0;
  for (std::uint64_t step = 0; step < 1500; ++step) {
    std::ranges::fill(gradient, 0.0F);
    loss = 0;
    for (std::size_t r = 0; r < kRows; ++r) {
      const float* x = &data[r * kIn];
      float h[kHidden], y = 0, wanted = 0;
      for (std::size_t j = 0; j < kHidden; ++j) {
        float s = 0;
        for (std::size_t i = 0; i < kIn; ++i) s += w1[j * kIn + i] * x[i];
        h[j] = std::tanh(s);
        y += w2[j] * h[j];
      }
      for (std::size_t i = 0; i < kIn; ++i) wanted += teacher[i] * x[i];
      const float error = y - std::sin(wanted);
      loss += double{error} * error / kRows;
      for (std::size_t j = 0; j < kHidden; ++j) {
        gradient[kHidden * kIn + j] += error * h[j] / kRows;
        const float back = error * w2[j] * (1 - h[j] * h[j]) / kRows;
        for (std::size_t i = 0; i < kIn; ++i) gradient[j * kIn + i] += back * x[i];
      }
    }
    EXPECT_TRUE(feedback.encode(encoder, gradient, step, frame));
    EXPECT_TRUE(decode(frame, sent));
    for (std::size_t i = 0; i < w1.size(); ++i) w1[i] -= 0.1F * sent[i];
    for (std::size_t j = 0; j < kHidden; ++j) w2[j] -= 0.1F * sent[w1.size() + j];
  }
  return loss;
}
TEST_P(EveryCodec, TrainsASmallNetworkAsWholeGradientsDo) {
  CodecSpec spec = spec_of(GetParam(), 144);
  spec.fraction = 0.1;
  const double whole = loss_after(nullptr), compressed = loss_after(&spec);
  EXPECT_LT(whole, 0.25);
  EXPECT_LT(compressed, whole * 1.5 + 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Codec, EveryCodec,
                         testing::Values(CodecKind::kNone, CodecKind::kInt8, CodecKind::kFp8,
                                         CodecKind::kTopK, CodecKind::kRandomK,
                                         CodecKind::kPowerSgd, CodecKind::kLossless),
                         [](const auto& info) {
                           std::string name(to_string(info.param));
                           std::erase(name, '-');
                           return name;
                         });

TEST(Codec, BlocksAreThoseOfTheFormula) {
  for (const float scale : {1.0F, 1e-30F, 3e30F, 1e-38F}) {
    const std::size_t n = 77;
    auto x = normals(n, 5, scale);
    x[40] = 0.0F;
    CodecSpec spec{.kind = CodecKind::kInt8, .block = 32};
    const auto y = through(spec, x);
    spec.kind = CodecKind::kFp8;
    const auto z = through(spec, x);
    for (std::size_t at = 0; at < n; at += 32) {
      float most = 0;
      const std::size_t end = std::min(n, at + 32);
      for (std::size_t i = at; i < end; ++i) most = std::max(most, std::fabs(x[i]));
      for (std::size_t i = at; i < end; ++i) {
        if (most < 0x1p-118F) {
          EXPECT_EQ(y[i], 0.0F);
          EXPECT_EQ(z[i], 0.0F);
          continue;
        }
        EXPECT_EQ(y[i], std::nearbyint(x[i] * (127.0F / most)) * (most / 127.0F)) << i;
        // E4M3: 3 bits behind the leading one, steps of 2^-9 at the least.
        const float v = x[i] * (448.0F / most);
        int exponent = 0;
        (void)std::frexp(v, &exponent);
        const float step = std::ldexp(1.0F, std::max(exponent - 4, -9));
        EXPECT_EQ(z[i],
                  std::clamp(std::nearbyint(v / step) * step, -448.0F, 448.0F) * (most / 448.0F))
            << i;
      }
    }
  }
}

TEST(Codec, ABlockThatIsNotFiniteComesBackAsNaN) {
  for (const CodecKind kind : {CodecKind::kInt8, CodecKind::kFp8}) {
    auto x = normals(96, 6);
    x[40] = std::numeric_limits<float>::infinity();
    const auto y = through({.kind = kind, .block = 32}, x);
    for (std::size_t i = 0; i < 96; ++i) EXPECT_EQ(std::isnan(y[i]), i / 32 == 1) << i;
  }
}

TEST(Codec, TopKKeepsTheLargestAndTheFirstOfEqualOnes) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed, RngUse::kTest);
    const std::size_t n = 1 + rng.next_below(3000);
    std::vector<float> x(n);
    for (float& v : x) v = static_cast<float>(static_cast<int>(rng.next_below(41)) - 20);  // ties
    CodecSpec spec{.kind = CodecKind::kTopK, .fraction = 0.001 + rng.next_uniform() * 0.5};
    const std::uint64_t kept = kept_values(spec, n);
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order,
                             [&](auto a, auto b) { return std::fabs(x[a]) > std::fabs(x[b]); });
    std::vector<float> expected(n);
    for (std::uint64_t i = 0; i < kept; ++i) expected[order[i]] = x[order[i]];
    EXPECT_EQ(through(spec, x), expected) << "seed " << seed;
  }
  auto x = normals(1000, 3);
  x[500] = std::numeric_limits<float>::quiet_NaN();  // must not be lost in silence
  EXPECT_TRUE(std::isnan(through({.kind = CodecKind::kTopK, .fraction = 0.01}, x)[500]));
}

TEST(Codec, RandomKTakesOneOfEachRunAndAnotherOneNextStep) {
  const std::size_t n = 1003;
  const std::vector<float> ones(n, 1.0F);
  const CodecSpec spec{.kind = CodecKind::kRandomK, .fraction = 0.1, .seed = 5};
  const std::uint64_t kept = kept_values(spec, n);
  std::vector<int> times(n);
  for (std::uint64_t step = 0; step < 2000; ++step) {
    const auto y = through(spec, ones, step);
    EXPECT_EQ(std::ranges::count(y, 1.0F), static_cast<std::ptrdiff_t>(kept));
    for (std::size_t i = 0; i < n; ++i) times[i] += y[i] != 0.0F;
  }
  for (const int t : times) EXPECT_NEAR(t, 2000.0 * static_cast<double>(kept) / n, 75);
}

TEST(Codec, PowerSgdFindsAMatrixOfItsRank) {
  const std::uint64_t rows = 30, columns = 20;
  const auto a = normals(rows * 2, 8), b = normals(columns * 2, 9);
  std::vector<float> x(rows * columns), y(x.size());
  for (std::uint64_t i = 0; i < rows; ++i) {
    for (std::uint64_t c = 0; c < columns; ++c) {
      x[i * columns + c] = a[2 * i] * b[2 * c] + a[2 * i + 1] * b[2 * c + 1];
    }
  }
  Encoder encoder({.kind = CodecKind::kPowerSgd, .rows = rows, .rank = 2});
  std::vector<std::byte> frame;
  for (std::uint64_t step = 0; step < 3; ++step) ASSERT_TRUE(encoder.encode(x, step, frame));
  ASSERT_TRUE(decode(frame, y));
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-4);
}

TEST(Codec, LosslessKeepsEveryBitAndShrinksGradients) {
  auto x = normals(1 << 16, 10, 1e-3F);
  x[7] = std::bit_cast<float>(0x7fc12345U);
  x[8] = std::bit_cast<float>(1U);
  x[9] = -0.0F;
  Encoder encoder({.kind = CodecKind::kLossless});
  std::vector<std::byte> frame;
  ASSERT_TRUE(encoder.encode(x, 0, frame));
  std::vector<float> y(x.size());
  ASSERT_TRUE(decode(frame, y));
  EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * 4), 0);
  EXPECT_GT(encoder.totals().ratio(), 1.1);
}

TEST(Codec, RefusesWhatDoesNotFit) {
  std::vector<std::byte> frame{std::byte{1}};
  const std::vector<float> x(12);
  const CodecSpec wrong[] = {{.kind = CodecKind::kInt8, .block = 0},
                             {.kind = CodecKind::kFp8, .block = 70000},
                             {.kind = CodecKind::kTopK, .fraction = 0},
                             {.kind = CodecKind::kTopK, .fraction = 1.5},
                             {.kind = CodecKind::kRandomK, .fraction = std::nan("")},
                             {.kind = CodecKind::kPowerSgd, .rows = 5},
                             {.kind = CodecKind::kPowerSgd, .rows = 3, .rank = 4}};
  for (const CodecSpec& spec : wrong) {
    Encoder encoder(spec);
    const Status status = encoder.encode(x, 0, frame);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(status.error().message.find(to_string(spec.kind)), std::string::npos);
    EXPECT_EQ(frame.size(), 1U);
  }
  EXPECT_FALSE(codec_kind("zip"));
  EXPECT_EQ(*codec_kind("top-k"), CodecKind::kTopK);
}

TEST(CodecPolicy, CompressesNoMoreThanTheBottleneckAsks) {
  const std::uint64_t values = 1'000'000;  // 4 MB
  CodecView view{.links = {{"fast", 1e-4, 1e9, values},
                           {"medium", 1e-3, 50e6, values},
                           {"slow", 1e-2, 5e6, values}},
                 .compute_s = 0.1};
  auto decision = decide(view);
  ASSERT_TRUE(decision);
  const auto& chosen = decision->chosen;
  EXPECT_EQ(chosen[0].spec.kind, CodecKind::kNone);
  EXPECT_EQ(chosen[1].spec.kind, CodecKind::kNone);  // 0.081 s
  ASSERT_EQ(chosen[2].spec.kind, CodecKind::kTopK);  // 0.81 s whole, 0.22 s as int8
  EXPECT_LE(chosen[2].transfer_s, 0.1);
  EXPECT_GT(chosen[2].transfer_s, 0.099);
  EXPECT_EQ(decision->predicted_cost, 0.1);

  view.links[2].bytes_per_s = 5e4;  // cannot hide even at 100x: the others wait for it
  decision = decide(view);
  ASSERT_TRUE(decision);
  EXPECT_NEAR(decision->chosen[2].spec.fraction, 0.01, 1e-6);
  EXPECT_EQ(decision->predicted_cost, decision->chosen[2].transfer_s);
  EXPECT_EQ(decision->chosen[1].spec.kind, CodecKind::kNone);
  EXPECT_NE(decision->reason.find("slow"), std::string::npos);
  view.links[1].bytes_per_s = 0;
  EXPECT_NE(decide(view).error().message.find("medium"), std::string::npos);
}

TEST(CodecPolicy, NeverExceedsThePaceAndNeverCompressesWithoutNeed) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Rng rng(seed, RngUse::kTest);
    CodecView view{.compute_s = 0.01 + rng.next_uniform()};
    for (std::uint32_t i = 0; i < 1 + rng.next_below(6); ++i) {
      view.links.push_back({fmt::format("l{}", i), rng.next_uniform() * 0.02,
                            std::pow(10.0, 5 + 5 * rng.next_uniform()),
                            1 + rng.next_below(4'000'000)});
    }
    const auto decision = decide(view);
    ASSERT_TRUE(decision);
    for (std::size_t i = 0; i < view.links.size(); ++i) {
      const LinkCodec& codec = decision->chosen[i];
      EXPECT_LE(codec.transfer_s, decision->predicted_cost * 1.0000001) << "seed " << seed;
      if (codec.spec.kind != CodecKind::kNone) {
        EXPECT_GT(transfer_seconds(view.links[i], {}), decision->predicted_cost);
      }
    }
  }
}

}  // namespace
}  // namespace weft::comm
