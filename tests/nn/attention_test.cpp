#include "weft/nn/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "tests/nn/levels.h"
#include "weft/nn/cpu/bf16_convert.h"
#include "weft/nn/ops.h"

namespace weft::nn {
namespace {

struct Case {
  std::int64_t heads, kv_heads, head_dim, window;
};
const Case kCases[] = {{9, 3, 64, 0},  {4, 4, 32, 0},   {2, 1, 80, 0},  {3, 3, 8, 5},
                       {6, 2, 20, 40}, {8, 1, 128, 33}, {50, 1, 16, 0}, {100, 1, 32, 9}};

class AttentionAtLevel : public testing::TestWithParam<std::tuple<Isa, KvLayout>> {
 protected:
  void SetUp() override {
    before_ = cpu_isa();
    ASSERT_TRUE(set_isa(std::get<Isa>(GetParam())));
  }
  void TearDown() override { ASSERT_TRUE(set_isa(before_)); }
  // The layout of this test, where it can be used.
  KvLayout layout(const Case& c) const {
    const bool split = std::get<KvLayout>(GetParam()) == KvLayout::kSplit;
    return kv_layout(split, c.head_dim);
  }

 private:
  Isa before_ = Isa::kScalar;
};

// Random keys and values of a few sequences in separately allocated blocks;
// positions never written hold NaN.
struct Cache {
  std::int64_t kv_heads, head_dim;
  std::vector<std::vector<float>> k, v;  // [sequence][position * kv_heads * head_dim]
  std::vector<std::vector<float>> pages;
  std::vector<std::vector<const float*>> keys, values;
  std::vector<KvBlocks> blocks;

  Cache(std::mt19937& random, const std::vector<std::int64_t>& lengths, const AttentionShape& shape)
      : kv_heads(shape.kv_heads), head_dim(shape.head_dim) {
    const std::int64_t heads = kv_heads, dim = head_dim;
    for (std::int64_t length : lengths) {
      k.push_back(random_floats(random, length * heads * dim));
      v.push_back(random_floats(random, length * heads * dim));
      keys.emplace_back(), values.emplace_back();
      const auto floats = static_cast<std::size_t>(heads * dim * kAttentionBlock);
      for (std::int64_t start = 0; start < length; start += kAttentionBlock) {
        std::vector<float> key(floats, std::numeric_limits<float>::quiet_NaN()), value = key;
        for (std::int64_t p = start; p < std::min(start + kAttentionBlock, length); ++p) {
          store_kv(shape, k.back().data() + p * heads * dim, v.back().data() + p * heads * dim,
                   p - start, key.data(), value.data());
        }
        pages.push_back(std::move(key));
        keys.back().push_back(pages.back().data());
        pages.push_back(std::move(value));
        values.back().push_back(pages.back().data());
      }
    }
    for (std::size_t i = 0; i < keys.size(); ++i) blocks.push_back({keys[i], values[i]});
  }
};

struct Query {
  std::int32_t sequence, position;
};

struct Answer {
  std::vector<float> out, logsumexp;
};

Answer run(const AttentionShape& shape, const Cache& cache, const std::vector<Query>& queries,
           const std::vector<float>& q, ThreadPool& pool) {
  Answer answer{std::vector<float>(q.size()),
                std::vector<float>(queries.size() * static_cast<std::size_t>(shape.heads))};
  std::vector<QueryRow> rows;
  const std::int64_t width = shape.heads * shape.head_dim;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const auto n = static_cast<std::int64_t>(i);
    rows.push_back({q.data() + n * width, answer.out.data() + n * width,
                    answer.logsumexp.data() + n * shape.heads, queries[i].sequence,
                    queries[i].position});
  }
  attention(shape, cache.blocks, rows, pool);
  return answer;
}

TEST_P(AttentionAtLevel, AttentionIsNearTheDoubleResult) {
  ThreadPool pool(2);
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.heads << " heads of " << c.head_dim);
    std::mt19937 random(1);
    const std::vector<std::int64_t> lengths{1, 70, 33};
    const AttentionShape shape{c.heads, c.kv_heads, c.head_dim, 0.2F, c.window, layout(c)};
    const double near = shape.layout == KvLayout::kSplit ? 5e-5 : 1e-5;
    const Cache cache(random, lengths, shape);
    std::vector<Query> queries;
    for (std::int32_t s = 0; s < 3; ++s) {
      for (std::int32_t p = 0; p < lengths[s]; p += 1 + p % 3) queries.push_back({s, p});
    }
    const std::int64_t width = c.heads * c.head_dim;
    const auto q = random_floats(random, std::ssize(queries) * width);
    const Answer answer = run(shape, cache, queries, q, pool);
    for (std::size_t i = 0; i < queries.size(); ++i) {
      const auto [s, p] = queries[i];
      for (std::int64_t h = 0; h < c.heads; ++h) {
        const std::int64_t kv = h / (c.heads / c.kv_heads);
        const float* query = q.data() + static_cast<std::int64_t>(i) * width + h * c.head_dim;
        std::vector<double> out(c.head_dim);
        double sum = 0.0;
        for (std::int64_t t = c.window > 0 ? std::max<std::int64_t>(0, p - c.window + 1) : 0;
             t <= p; ++t) {
          double score = 0.0;
          const std::int64_t at = (t * c.kv_heads + kv) * c.head_dim;
          for (std::int64_t d = 0; d < c.head_dim; ++d)
            score += double{query[d]} * cache.k[s][at + d];
          const double weight = std::exp(score * 0.2F);
          sum += weight;
          for (std::int64_t d = 0; d < c.head_dim; ++d) out[d] += weight * cache.v[s][at + d];
        }
        const auto row = static_cast<std::int64_t>(i);
        EXPECT_NEAR(answer.logsumexp[row * c.heads + h], std::log(sum), near);
        for (std::int64_t d = 0; d < c.head_dim; ++d) {
          ASSERT_NEAR(answer.out[row * width + h * c.head_dim + d], out[d] / sum, near);
        }
      }
    }
  }
}

TEST_P(AttentionAtLevel, AttentionGivesTheScalarBitsInAnyBatch) {
  ThreadPool one(1), two(2);
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.heads << " heads of " << c.head_dim);
    std::mt19937 random(2);
    const std::vector<std::int64_t> lengths{35, 66};
    const AttentionShape shape{c.heads, c.kv_heads, c.head_dim, 0.3F, c.window, layout(c)};
    const Cache cache(random, lengths, shape);
    std::vector<Query> queries;
    for (std::int32_t s = 0; s < 2; ++s) {
      for (std::int32_t p = 0; p < lengths[s]; ++p) queries.push_back({s, p});
    }
    const std::int64_t width = c.heads * c.head_dim;
    const auto q = random_floats(random, std::ssize(queries) * width);
    const Isa level = cpu_isa();
    const Answer whole = run(shape, cache, queries, q, two);
    if (shape.layout == KvLayout::kF32) {
      ASSERT_TRUE(set_isa(Isa::kScalar));
      const Answer scalar = run(shape, cache, queries, q, one);
      ASSERT_TRUE(set_isa(level));
      EXPECT_SAME_BITS(whole.out, scalar.out);
      EXPECT_SAME_BITS(whole.logsumexp, scalar.logsumexp);
    }
    for (std::size_t size : {5, 64}) {  // as decode and as chunked prefill
      for (std::size_t begin = 0; begin < queries.size(); begin += size) {
        const std::size_t end = std::min(begin + size, queries.size());
        const Answer part =
            run(shape, cache, {queries.begin() + begin, queries.begin() + end},
                {q.begin() + begin * width, q.begin() + end * width}, begin % 2 == 0 ? one : two);
        EXPECT_SAME_BITS(part.out, std::vector<float>(whole.out.begin() + begin * width,
                                                      whole.out.begin() + end * width));
      }
    }
  }
}

TEST_P(AttentionAtLevel, AttentionIsTheMergeOfItsBlocks) {
  if (std::get<KvLayout>(GetParam()) == KvLayout::kSplit) GTEST_SKIP() << "see SplitAttention";
  ThreadPool pool(1);
  std::mt19937 random(3);
  const std::int64_t dim = 64;
  const std::int32_t last = 99;
  const AttentionShape shape{1, 1, dim, 0.125F, 0};
  const Cache cache(random, {last + 1}, shape);
  const auto q = random_floats(random, dim);
  const Answer whole = run(shape, cache, {{0, last}}, q, pool);
  std::vector<float> out(dim), block_out(dim);
  Partial total{-std::numeric_limits<float>::infinity(), 0.0F, out.data()};
  for (std::int64_t b = 0; b < 4; ++b) {
    const std::int64_t n = std::min<std::int64_t>(kAttentionBlock, last + 1 - b * kAttentionBlock);
    std::vector<float> scores(static_cast<std::size_t>(n));
    float top = -std::numeric_limits<float>::infinity();
    for (std::int64_t i = 0; i < n; ++i) {
      float s = 0.0F;
      for (std::int64_t d = 0; d < dim; ++d) {
        s = std::fmaf(q[d], cache.keys[0][b][d * kAttentionBlock + i], s);
      }
      scores[i] = s * 0.125F;
      top = std::max(top, scores[i]);
    }
    float lanes[16] = {};
    std::fill(block_out.begin(), block_out.end(), 0.0F);
    for (std::int64_t i = 0; i < n; ++i) {
      const float p = exp_f32(scores[i] - top);
      lanes[i % 16] += p;
      for (std::int64_t d = 0; d < dim; ++d) {
        block_out[d] = std::fmaf(p, cache.values[0][b][i * dim + d], block_out[d]);
      }
    }
    for (int step : {8, 4, 2, 1}) {
      for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
    }
    merge(total, {top, lanes[0], block_out.data()}, dim);
  }
  for (float& o : out) o *= 1.0F / total.sum;
  EXPECT_SAME_BITS(whole.out, out);
  EXPECT_EQ(whole.logsumexp[0], total.max + log_f32(total.sum));
}

std::vector<std::tuple<Isa, KvLayout>> levels_and_layouts() {
  std::vector<std::tuple<Isa, KvLayout>> result;
  for (const Isa isa : levels()) {
    result.emplace_back(isa, KvLayout::kF32);
    if (isa == Isa::kAmx) result.emplace_back(isa, KvLayout::kSplit);
  }
  return result;
}
std::string name_of(const testing::TestParamInfo<std::tuple<Isa, KvLayout>>& info) {
  const auto [isa, layout] = info.param;
  return std::string(to_string(isa)) + (layout == KvLayout::kSplit ? "_split" : "");
}
INSTANTIATE_TEST_SUITE_P(Attention, AttentionAtLevel, testing::ValuesIn(levels_and_layouts()),
                         name_of);

// One query of split attention in plain C++, as docs/numerics.md says it.
struct Parts {
  float high, low;
};
Parts split(float x) {
  const float high = from_bf16(to_bf16(x));
  return {high, from_bf16(to_bf16(x - high))};
}
float flush(float x) { return std::fabs(x) < 1.17549435e-38F ? std::copysign(0.0F, x) : x; }
// Adds the 32 products of one part of a and one part of b to sum, as TDPBF16PS does.
float add_products(const Parts* a, float Parts::* of_a, const Parts* b, float Parts::* of_b,
                   float sum) {
  float halves[2] = {};
  for (int i = 0; i < 32; ++i) {
    float& half = halves[i % 2];
    half = flush(std::fmaf(flush(a[i].*of_a), flush(b[i].*of_b), half));
  }
  return flush(flush(sum) + flush(halves[0] + halves[1]));
}
// a: of keys or values, b: of the query or its weights.
float product(const std::vector<Parts>& a, const std::vector<Parts>& b) {
  float sum = 0.0F;
  for (std::size_t d = 0; d < a.size(); d += 32) {
    sum = add_products(&a[d], &Parts::low, &b[d], &Parts::high, sum);
    sum = add_products(&a[d], &Parts::high, &b[d], &Parts::high, sum);
    sum = add_products(&a[d], &Parts::high, &b[d], &Parts::low, sum);
  }
  return sum;
}

TEST(SplitAttention, IsTheFormulaOfTheContract) {
  if (kv_layout(true, 64) != KvLayout::kSplit) GTEST_SKIP() << "no AMX";
  ThreadPool pool(1);
  std::mt19937 random(4);
  for (const std::int64_t window : {0, 50}) {
    const std::int64_t dim = 64;
    const std::int32_t last = 99;
    const float scale = 0.125F, lowest = -std::numeric_limits<float>::infinity();
    const AttentionShape shape{1, 1, dim, scale, window, KvLayout::kSplit};
    const Cache cache(random, {last + 1}, shape);
    const auto q = random_floats(random, dim, 4.0F);
    const Answer whole = run(shape, cache, {{0, last}}, q, pool);
    std::vector<Parts> query;
    for (const float x : q) query.push_back(split(x));
    std::vector<float> out(dim);
    Partial total{lowest, 0.0F, out.data()};
    for (std::int64_t base = 0; base <= last; base += kAttentionBlock) {
      std::vector<Parts> weights(kAttentionBlock);
      float scores[kAttentionBlock], sums[4] = {}, top = lowest;
      const auto seen = [&](std::int64_t i) {
        return base + i <= last && (window == 0 || base + i > last - window);
      };
      for (std::int64_t i = 0; i < kAttentionBlock; ++i) {
        if (!seen(i)) continue;
        std::vector<Parts> key;
        for (std::int64_t d = 0; d < dim; ++d)
          key.push_back(split(cache.k[0][(base + i) * dim + d]));
        scores[i] = product(key, query);
        top = std::max(top, scores[i]);
      }
      if (top == lowest) continue;
      top *= scale;
      for (std::int64_t i = 0; i < kAttentionBlock; ++i) {
        if (!seen(i)) continue;
        const float p = exp_f32(std::fmaf(scores[i], scale, 0.0F - top));
        sums[i % 4] += p;
        weights[i] = split(p);
      }
      std::vector<float> block_out;
      for (std::int64_t d = 0; d < dim; ++d) {
        std::vector<Parts> values(kAttentionBlock);
        for (std::int64_t i = 0; i < kAttentionBlock && base + i <= last; ++i) {
          values[i] = split(cache.v[0][(base + i) * dim + d]);
        }
        block_out.push_back(product(values, weights));
      }
      merge(total, {top, (sums[0] + sums[1]) + (sums[2] + sums[3]), block_out.data()}, dim);
    }
    for (float& o : out) o *= 1.0F / total.sum;
    EXPECT_SAME_BITS(whole.out, out);
    EXPECT_EQ(whole.logsumexp[0], total.max + log_f32(total.sum));
  }
}

}  // namespace
}  // namespace weft::nn
